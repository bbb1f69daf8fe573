"""Pose tokenizer, stage 1 of Di2Pose.  B batch, J joints, N tokens, C codes, D, W widths, d code channels.

Every public function takes and returns root-relative millimetres, camera axes, float32; the joints are those of the
configuration's skeleton. The network works in metres, and in float32 under autocast, too: in bfloat16 1 token of 15
would be another, and joints 2 mm off.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import TokenizerConfig, model_skeleton
from di2pose.device import in_float32
from di2pose.errors import InputError
from di2pose.pose.skeleton import Skeleton
from di2pose.tokenizer.fsq import FSQ, check_tokens
from di2pose.tokenizer.local_mlp import LocalMLP, MixerBlock
from di2pose.tokenizer.vq import VQ

MM_PER_METRE = 1000.0
EMBED_STD = 0.3
"""Deviation of a joint's learned vector at the start: about that of the embedded coordinates beside it."""


class CodeUsage(NamedTuple):
    """How much of the codebook some poses use."""

    used: int
    """Codes, of C."""
    used_per_position: float
    perplexity: float
    """exp of the entropy of the codes over all positions: C when all are equally frequent."""


class PoseTokenizer(nn.Module):
    """3D pose <-> N discrete tokens: Local-MLP encoder, FSQ (or PCT's VQ), decoder."""

    order: Tensor

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        self.config, self.skeleton = config, model_skeleton(config.skeleton)
        J, D, W = self.skeleton.count, config.encoder_width, config.decoder_width
        kind, reach = (LocalMLP, config.local_joints) if config.block == "local" else (MixerBlock, J)
        block: Any = partial(kind, joints=reach, mlp_ratio=config.mlp_ratio)

        self.joint_embed = nn.Linear(3, D)
        self.encoder = nn.Sequential(*(block(D) for _ in range(config.encoder_blocks)), nn.LayerNorm(D))
        self.joints_to_tokens = nn.Linear(J, config.tokens)
        self.token_mix = nn.Sequential(nn.LayerNorm(D), nn.GELU()) if config.token_mix else nn.Identity()
        self.to_channels = nn.Linear(D, config.channels)
        self.quantiser = FSQ(config.levels) if config.quantiser == "fsq" else VQ(config.codes, config.channels)

        self.code_embed: nn.Module = nn.Linear(config.channels, W)
        if config.code_embed == "mlp":
            self.code_embed = nn.Sequential(self.code_embed, nn.GELU(), nn.Linear(W, W))
        self.code_table = nn.Embedding(config.codes, W) if config.code_embed == "table" else None
        self.tokens_to_joints = nn.Linear(config.tokens, J)
        self.decoder = nn.Sequential(*(block(W) for _ in range(config.decoder_blocks)), nn.LayerNorm(W))
        self.to_joints = nn.Linear(W, 3)
        self.encoder_joint = nn.Parameter(EMBED_STD * torch.randn(J, D)) if config.joint_embed else None
        self.decoder_joint = nn.Parameter(EMBED_STD * torch.randn(J, W)) if config.joint_embed else None
        if self.code_table is not None:
            nn.init.zeros_(self.code_table.weight)

        order = chain_order(self.skeleton) if config.joint_order == "chain" else list(range(J))
        self.register_buffer("order", torch.tensor(order), persistent=False)

    @torch.no_grad()
    def encode(self, joints_mm: Float[Tensor, "B J 3"]) -> Int[Tensor, "B N"]:
        """k = FSQ(f_proj(f_PE(f_emb(P)))): the tokens of each pose, 0..C-1."""
        return self.quantiser(self._channels(self._metres(joints_mm)))[1]

    @torch.no_grad()
    def latents(self, joints_mm: Float[Tensor, "B J 3"]) -> Float[Tensor, "B N d"]:
        """The latents that `encode` rounds; of FSQ in about [-1, 1]^d."""
        return self.quantiser.bounded_latents(self._channels(self._metres(joints_mm)))

    def decode(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B J 3"]:
        """P_hat = f_PD(T): the pose of each token sequence, root exactly 0."""
        if tokens.ndim != 2 or tokens.shape[1] != self.config.tokens:
            raise InputError(f"tokens must have shape (B, {self.config.tokens}), got {tuple(tokens.shape)}")
        check_tokens(tokens, self.config.codes)
        return self.decode_embedded(F.embedding(tokens, self.codebook()))

    @in_float32
    def decode_soft(self, probabilities: Float[Tensor, "B N C"]) -> Float[Tensor, "B J 3"]:
        """The pose of the EXPECTED code embedding under (B, N, C) probabilities; `decode` where they are one-hot."""
        N, C = self.config.tokens, self.config.codes
        if probabilities.ndim != 3 or probabilities.shape[1:] != (N, C):
            raise InputError(f"probabilities must have shape (B, {N}, {C}), got {tuple(probabilities.shape)}")
        codebook = self.codebook()
        return self.decode_embedded(probabilities.to(codebook.dtype) @ codebook)

    def decode_embedded(self, embedded: Float[Tensor, "B N W"]) -> Float[Tensor, "B J 3"]:
        """The pose of embedded codes."""
        return self._decode(embedded) * MM_PER_METRE

    def loss(self, joints_mm: Float[Tensor, "B J 3"]) -> dict[str, Tensor]:
        """Scalars: `loss` (what is minimised), `mpjpe_mm`, `perplexity`; of VQ also `commitment`."""
        target = self._metres(joints_mm)
        latents = self._channels(target)
        codes, tokens = self.quantiser(latents)
        pose = self._decode(self._embed(codes, tokens))
        error = (pose - target).norm(dim=-1).mean()
        loss = F.l1_loss(pose, target) if self.config.loss == "l1" else error
        perplexity = torch.tensor(self.usage(tokens).perplexity)
        losses = {"mpjpe_mm": error.detach() * MM_PER_METRE, "perplexity": perplexity}
        if self.config.quantiser == "vq":
            losses["commitment"] = F.mse_loss(latents.float(), codes.detach())
            loss = loss + self.config.commitment * losses["commitment"]
        return {"loss": loss, **losses}

    def update_codebook(self) -> None:
        """After a step of training: update VQ's running means. FSQ has nothing to update."""
        if isinstance(self.quantiser, VQ):
            self.quantiser.update_codebook()

    def usage(self, tokens: Int[Tensor, "B N"]) -> CodeUsage:
        """Codes used by (B, N) tokens."""
        counts = torch.zeros(self.config.tokens, self.config.codes)
        positions = torch.arange(self.config.tokens).expand_as(tokens)
        counts.index_put_((positions, tokens.cpu()), torch.ones(()), accumulate=True)
        share = counts.sum(0) / counts.sum()
        used, per_position = (share > 0).sum(), (counts > 0).sum(1).float().mean()
        return CodeUsage(int(used), float(per_position), float(torch.special.entr(share).sum().exp()))

    def codebook(self) -> Float[Tensor, "C W"]:
        """The decoder's embedding of every code."""
        tokens = torch.arange(self.config.codes, device=self.order.device)
        return self._embed(self.quantiser.indices_to_codes(tokens), tokens)

    @in_float32
    def _channels(self, pose_m: Tensor) -> Tensor:
        x = self.joint_embed(pose_m)                                        # B J D
        if self.encoder_joint is not None:
            x = x + self.encoder_joint                                      # B J D
        x = self.encoder(x[:, self.order])                                  # B J D, in `joint_order`
        x = self.joints_to_tokens(x.transpose(1, 2)).transpose(1, 2)        # B N D
        return self.to_channels(self.token_mix(x))                          # B N d

    @in_float32
    def _embed(self, codes: Tensor, tokens: Tensor) -> Tensor:
        # A bare table would cut the gradient to the encoder, so it is a residual on the linear embedding.
        embedded = self.code_embed(codes)                                   # B N W
        return embedded if self.code_table is None else embedded + self.code_table(tokens)

    @in_float32
    def _decode(self, embedded: Tensor) -> Tensor:
        x = self.tokens_to_joints(embedded.transpose(1, 2)).transpose(1, 2)  # B J W, in `joint_order`
        if self.decoder_joint is not None:
            x = x + self.decoder_joint[self.order]                          # B J W
        x = self.to_joints(self.decoder(x))[:, self.order.argsort()]        # B J 3, metres
        return x - x[:, :1]

    def _metres(self, joints_mm: Tensor) -> Tensor:
        J = self.skeleton.count
        if joints_mm.ndim != 3 or joints_mm.shape[1:] != (J, 3):
            raise InputError(f"poses must have shape (B, {J}, 3) in millimetres, got {tuple(joints_mm.shape)}")
        # Root-relative already; subtracting the root, the first joint, again makes an absolute pose harmless.
        return (joints_mm - joints_mm[:, :1]).float() / MM_PER_METRE


def chain_order(skeleton: Skeleton) -> list[int]:
    """The joints limb after limb: the root's first two limbs joined at the root, then the others from their tips. A
    limb follows the first child of each joint. Of Human3.6M's 16 bones 13 join neighbours, the most of any order."""
    first = {parent: child for child, parent in reversed(skeleton.bones)}
    starts = [child for child, parent in skeleton.bones if parent == skeleton.root or first[parent] != child]
    limbs = [[start] for start in starts]
    for limb in limbs:
        while limb[-1] in first:
            limb.append(first[limb[-1]])
    ahead, behind = limbs[0][::-1], [joint for limb in limbs[2:] for joint in limb[::-1]]
    return [*ahead, skeleton.root, *(limbs[1] if len(limbs) > 1 else []), *behind]
