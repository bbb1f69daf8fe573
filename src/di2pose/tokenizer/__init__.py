"""Tokens <-> joints."""

from di2pose.tokenizer.fsq import FSQ
from di2pose.tokenizer.local_mlp import LocalMLP, MixerBlock, joint_shift
from di2pose.tokenizer.tokenizer import CodeUsage, PoseTokenizer
from di2pose.tokenizer.vq import VQ

__all__ = ["FSQ", "VQ", "CodeUsage", "LocalMLP", "MixerBlock", "PoseTokenizer", "joint_shift"]
