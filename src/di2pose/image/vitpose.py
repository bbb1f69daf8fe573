"""ViTPose, the paper's image encoder, through the package transformers (extra `vitpose`): 256x192 crop, 192 tokens.

B batch, C width (small 384, base 768, large 1024, huge 1280). Weights come from a hub by name or from a local folder.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from di2pose.device import autocast
from di2pose.errors import InputError, require
from di2pose.image.crop import ROI_MARGIN, Roi, roi_from_box
from di2pose.image.detect import Detection
from di2pose.image.encoder import EncoderOutput, FeatureLayout, TokenBlock
from di2pose.pose.camera import Camera

WIDTH, HEIGHT, TOKENS = 192, 256, 192
DEFAULT = "usyd-community/vitpose-base-simple"
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class VitPose(nn.Module):
    """Crops (B, 256, 192, 3), RGB uint8 -> features (B, 192, C), 16 rows of 12 patches, rows first. Frozen.

    An `image.encoder.Encoder` without landmarks, in PyTorch on any device. Its region is the upright box, and poses
    stay in the camera's axes, as in the paper.
    """

    size = (WIDTH, HEIGHT)
    mean: Tensor
    std: Tensor

    def __init__(self, name_or_folder: str = DEFAULT, head: bool = False) -> None:
        super().__init__()
        whole = load_frozen("VitPoseForPoseEstimation", name_or_folder)
        folder = Path(name_or_folder)
        self.name = f"vitpose:{folder.resolve() if folder.is_dir() else name_or_folder}"
        self.backbone = whole.backbone
        self.whole = whole if head else None
        """With the keypoint head, for `heat_maps`."""
        config = self.backbone.config
        if tuple(config.image_size) != (HEIGHT, WIDTH) or tuple(config.patch_size) != (16, 16):
            raise InputError(
                f"the paper's encoder takes {HEIGHT}x{WIDTH} crops in patches of 16, "
                f"{name_or_folder} takes {config.image_size} in patches of {config.patch_size}"
            )
        self.width = int(config.hidden_size)
        self.layout = FeatureLayout((TokenBlock("tokens", TOKENS, self.width, 0),))
        # Mixture-of-experts ("plus") checkpoints need the number of a data set's expert: 0 is COCO.
        self.expert = 0 if config.num_experts > 1 else None
        self.register_buffer("mean", torch.tensor(_MEAN), persistent=False)
        self.register_buffer("std", torch.tensor(_STD), persistent=False)

    @torch.inference_mode()
    def forward(self, crops: UInt8[Tensor, "B 256 192 3"]) -> Float[Tensor, "B 192 C"]:
        pixels, experts = self._inputs(crops)
        with autocast(pixels.device):
            return self.backbone(pixels, dataset_index=experts).feature_maps[-1].float()

    @torch.inference_mode()
    def heat_maps(self, crops: UInt8[np.ndarray, "B 256 192 3"]) -> Float[np.ndarray, "B 17 h w"]:
        """Of the keypoint head."""
        assert self.whole is not None
        pixels, experts = self._inputs(torch.tensor(crops).to(self.mean.device))
        with autocast(pixels.device):
            maps: np.ndarray = self.whole(pixels, dataset_index=experts).heatmaps.float().cpu().numpy()
        return maps

    def _inputs(self, crops: UInt8[Tensor, "B 256 192 3"]) -> tuple[Tensor, Tensor | None]:
        pixels = ((crops.float() / 255 - self.mean) / self.std).permute(0, 3, 1, 2)
        experts = None if self.expert is None else torch.full((len(crops),), self.expert, device=pixels.device)
        return pixels, experts

    def region(self, detection: Detection) -> Roi:
        """The box, grown to the crop's aspect and by a margin; of BlazePose's circle round the body what its box would
        be. A region's side is the crop's height."""
        if detection.hip is not None:
            return Roi(detection.roi.centre, detection.roi.side)
        x0, y0, x1, y1 = detection.box
        centre = roi_from_box(detection.box).centre
        return Roi(centre, ROI_MARGIN * max((x1 - x0) * HEIGHT / WIDTH, y1 - y0))

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        """As in unbiased data processing (UDP): the centres of the first and the last pixel lie on the borders."""
        step_x, step_y = region.side * WIDTH / HEIGHT / (WIDTH - 1), region.side / (HEIGHT - 1)
        x, y = region.centre
        return np.array([[step_x, 0.0, x - step_x * WIDTH / 2], [0.0, step_y, y - step_y * HEIGHT / 2]])

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        return np.eye(3)

    def encode(self, crops: UInt8[np.ndarray, "B 256 192 3"]) -> EncoderOutput:
        return EncoderOutput(self._tokens(crops).cpu().numpy())

    def cache_parts(self, crops: UInt8[np.ndarray, "B 256 192 3"]) -> dict[str, np.ndarray]:
        """The tokens in fp16."""
        return {"tokens": self._tokens(crops).half().cpu().numpy()}

    def _tokens(self, crops: UInt8[np.ndarray, "B 256 192 3"]) -> Float[Tensor, "B 192 C"]:
        found: Tensor = self(torch.tensor(crops).to(self.mean.device))  # a copy: decoded pictures may be read-only
        return found


def load(name: str, device: Any = "cpu") -> VitPose:
    """'vitpose:FOLDER-OR-HUB-NAME', or 'vitpose' for the base model of the hub."""
    return VitPose(name.partition(":")[2] or DEFAULT).to(device)


def load_frozen(kind: str, name_or_folder: str) -> Any:
    """A model of that class of transformers, for inference. Only safetensors are read: other weights may run code."""
    loader = getattr(require("transformers", extra="vitpose"), kind)
    unreadable = require("safetensors", extra="vitpose").SafetensorError
    try:
        model = loader.from_pretrained(name_or_folder, use_safetensors=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, unreadable) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"could not load '{name_or_folder}': {first}. Give a hub name while the network is up, or a local folder "
            "with config.json and model.safetensors (huggingface-cli download NAME --local-dir FOLDER)"
        ) from error
    return model.eval().requires_grad_(False)
