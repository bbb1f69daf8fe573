"""Linear layers in 8 bits, for inference on a CPU.  R rows, I inputs, O outputs.

Weights are rounded once, to 255 levels an output; inputs when they come, to 255 levels a row. Products are summed in
integers, exactly. On CPUs that multiply bytes (VNNI, AMX) three to four times as fast as float32; nothing is retrained.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 127


class Int8Linear(nn.Module):
    """An nn.Linear, rounded."""

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.detach().abs().amax(1).clamp_min(1e-12) / LEVELS          # O
        self.register_buffer("weight", (linear.weight.detach() / scale.unsqueeze(1)).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", linear.bias.detach().clone())

    def forward(self, x: Float[Tensor, "*R I"]) -> Float[Tensor, "*R O"]:
        rows = x.reshape(-1, x.shape[-1])                                               # R I
        size = rows.abs().amax(1, keepdim=True).clamp_min(1e-12) / LEVELS               # R 1
        sums = torch._int_mm((rows / size).round_().to(torch.int8), self.weight.t())    # R O, int32
        return torch.addcmul(self.bias, sums * size, self.scale).unflatten(0, x.shape[:-1])


def round_linears(blocks: nn.Module) -> None:
    """Replace, in place, every nn.Linear inside of attention and MLPs; norms are left as they are."""
    for name, module in list(blocks.named_modules()):
        if isinstance(module, nn.Linear) and not name.endswith("to_scale_and_shift"):
            parent, _, own = name.rpartition(".")
            setattr(blocks.get_submodule(parent), own, Int8Linear(module))
