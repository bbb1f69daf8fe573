"""RT-DETR and its kin: boxes of people by a network of the package transformers, whose weights the user brings."""

import numpy as np
import torch
from PIL import Image
from torch import nn

from di2pose.errors import InputError
from di2pose.image.crop import roi_from_box
from di2pose.image.detect import Detection, largest
from di2pose.image.vitpose import load_frozen

SCORE = 0.5
"""Least score of a person."""


class RtDetr(nn.Module):
    """RT-DETR, RT-DETRv2 or D-FINE of the package transformers (extra `vitpose`), by hub name or local folder."""

    def __init__(self, name_or_folder: str) -> None:
        super().__init__()
        self.model = load_frozen("AutoModelForObjectDetection", name_or_folder)
        names = {label.lower(): index for index, label in self.model.config.id2label.items()}
        if "person" not in names:
            raise InputError(f"the detector {name_or_folder} knows no class 'person', only {sorted(names)[:10]}")
        self.person = names["person"]

    @torch.inference_mode()
    def detect(self, image: Image.Image, max_people: int = 8, least: float = SCORE) -> list[Detection]:
        """The `max_people` largest boxes of those at least so sure, largest first, each with its upright crop."""
        # The family's own preprocessing: 640x640 whatever the aspect, 0 to 1, no further normalisation.
        pixels = torch.from_numpy(np.array(image.resize((640, 640), Image.Resampling.BILINEAR)))
        seen = self.model(pixel_values=(pixels.permute(2, 0, 1)[None].float() / 255).to(self.model.device))
        scores = seen.logits[0, :, self.person].sigmoid().cpu()
        centre, extent = seen.pred_boxes[0].double().cpu().split(2, dim=-1)
        boxes = torch.cat([centre - extent / 2, centre + extent / 2], dim=-1) * torch.tensor(image.size * 2)
        found = []
        for score, (x0, y0, x1, y1) in zip(scores.tolist(), boxes.tolist(), strict=True):
            if score >= least and x1 > x0 and y1 > y0:
                found.append(Detection((x0, y0, x1, y1), score, roi_from_box((x0, y0, x1, y1))))
        return largest(found, image.size, max_people)
