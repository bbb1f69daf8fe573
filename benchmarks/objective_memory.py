"""Peak memory of the diffusion objective, in logit-sized tensors, at the paper's size: 64 x 100 tokens x 4375 codes.

    python benchmarks/objective_memory.py

Each case runs in a process of its own; its peak resident memory, less that of the same process without the case, is
divided by the size of the logits. The logits and their gradient are counted.
"""

import subprocess
import sys

import torch
from clock import peak_bytes

from di2pose.diffusion import Schedule, diffusion_loss, forward_sample

SHAPE = (64, 100, 4375)
CASES = ("nothing", "logits", "loss", "loss and gradient")


def run(case: str) -> None:
    schedule = Schedule(SHAPE[2])
    generator = torch.Generator().manual_seed(0)
    warm = torch.zeros(2, 3, SHAPE[2], requires_grad=True)  # lazily loaded code must not count as tensors
    two = torch.zeros(2, 3, dtype=torch.int64)
    diffusion_loss(warm, two, two, torch.tensor([3, 9]), schedule, 5e-4)["loss"].backward()
    if case != "nothing":
        logits = torch.empty(SHAPE).normal_(generator=generator).requires_grad_(case == "loss and gradient")
        k0 = torch.randint(SHAPE[2], SHAPE[:2], generator=generator)
        s = torch.randint(1, 101, SHAPE[:1], generator=generator)
        ks = forward_sample(k0, s, schedule, generator)
    if case.startswith("loss"):
        loss = diffusion_loss(logits, k0, ks, s, schedule, 5e-4)["loss"]
    if case == "loss and gradient":
        loss.backward()
    print(peak_bytes())


def main() -> None:
    size = SHAPE[0] * SHAPE[1] * SHAPE[2] * 4
    peaks = {
        case: int(subprocess.run([sys.executable, __file__, case], capture_output=True, check=True).stdout)
        for case in CASES
    }
    print(f"logits {SHAPE}: {size / 2**20:.0f} MiB")
    for case in CASES[1:]:
        print(f"{case:<18} {(peaks[case] - peaks['nothing']) / size:5.2f} logit-sized tensors at the peak")


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()
