"""ViTPose, the paper's image encoder, through the package transformers (extra `vitpose`): 256x192 crop, 192 tokens.

B batch, C width (small 384, base 768, large 1024, huge 1280). Weights come from a hub by name or from a local folder.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from di2pose.errors import InputError, require
from di2pose.image.crop import upright_matrix, warp

WIDTH, HEIGHT, TOKENS = 192, 256, 192
DEFAULT = "usyd-community/vitpose-base-simple"
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class VitPose(nn.Module):
    """Crops (B, 256, 192, 3), RGB uint8 -> features (B, 192, C), 16 rows of 12 patches, rows first. Frozen."""

    mean: Tensor
    std: Tensor

    def __init__(self, name_or_folder: str = DEFAULT) -> None:
        super().__init__()
        transformers = require("transformers", extra="vitpose")
        whole = load_frozen(transformers.VitPoseForPoseEstimation, name_or_folder)
        self.backbone = whole.backbone
        config = self.backbone.config
        if tuple(config.image_size) != (HEIGHT, WIDTH) or tuple(config.patch_size) != (16, 16):
            raise InputError(
                f"the paper's encoder takes {HEIGHT}x{WIDTH} crops in patches of 16, "
                f"{name_or_folder} takes {config.image_size} in patches of {config.patch_size}"
            )
        self.width = int(config.hidden_size)
        # Mixture-of-experts ("plus") checkpoints must be told which data set's expert to use: 0 is COCO.
        self.expert = 0 if config.num_experts > 1 else None
        self.register_buffer("mean", torch.tensor(_MEAN), persistent=False)
        self.register_buffer("std", torch.tensor(_STD), persistent=False)

    @torch.inference_mode()
    def forward(self, crops: UInt8[Tensor, "B 256 192 3"]) -> Float[Tensor, "B 192 C"]:
        pixels = ((crops.float() / 255 - self.mean) / self.std).permute(0, 3, 1, 2)
        experts = None if self.expert is None else torch.full((len(crops),), self.expert, device=pixels.device)
        return self.backbone(pixels, dataset_index=experts).feature_maps[-1]

    def encode_batch(self, crops: UInt8[np.ndarray, "B 256 192 3"]) -> dict[str, np.ndarray]:
        """What a feature cache keeps: the tokens in fp16."""
        return {"tokens": self(torch.from_numpy(crops).to(self.mean.device)).half().cpu().numpy()}


def paper_crop(image: Image.Image | np.ndarray, box: Sequence[float]) -> UInt8[np.ndarray, "256 192 3"]:
    """The upright 256x192 crop of a person's box (x0, y0, x1, y1), as ViTPose was trained."""
    return warp(image, upright_matrix(box, (WIDTH, HEIGHT)), (WIDTH, HEIGHT))


def load_frozen(kind: Any, name_or_folder: str) -> Any:
    """A transformers model from a local folder or the hub, for inference; fails with what to do instead."""
    try:
        model = kind.from_pretrained(name_or_folder)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(
            f"could not load '{name_or_folder}': {first}. Give a hub name while the network is up, or a local folder "
            "with config.json and model.safetensors (huggingface-cli download NAME --local-dir FOLDER)"
        ) from error
    return model.eval().requires_grad_(False)
