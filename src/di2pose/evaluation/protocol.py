"""Named protocols: which records, which joints, aligned how. A number without one of these means nothing."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from di2pose.errors import InputError
from di2pose.evaluation.records import Records
from di2pose.occlusion.protocols import SIZES, in_3dpw_occ
from di2pose.pose.skeleton import H36M_17, LIMB_12, LSP_14, SMPL_24, Skeleton


@dataclass(frozen=True)
class Sampling:
    """Which records of a prepared dataset count."""

    split: str | None = None
    subjects: tuple[str, ...] = ()
    every: int = 1
    """Keep a frame when it lies at least this many frames after the last kept one of the same person, view and sequence
    (so a dataset that was thinned before is thinned no further than asked)."""
    only_3dpw_occ: bool = False


@dataclass(frozen=True)
class Occlusion:
    """A patch on the picture: kind 'occ' (one, on a limb) or 'advocc' (the worst of all placements)."""

    kind: str
    size: int


@dataclass(frozen=True)
class Protocol:
    """Everything that must be equal for two numbers to be comparable."""

    id: str
    title: str
    skeleton: Skeleton
    joints: tuple[str, ...]
    root: tuple[str, ...]
    """Aligned at this joint, or at the mean of these. 'pelvis' of a skeleton without one is the records' own origin."""
    metrics: tuple[str, ...] = ("mpjpe", "pa_mpjpe")
    sampling: Sampling = Sampling()
    occlusion: Occlusion | None = None
    by_action: bool = False
    """The average is the mean of the 15 action means, as the Human3.6M tables have it."""

    @property
    def searches(self) -> bool:
        """For the worst placement of the patch."""
        return self.occlusion is not None and self.occlusion.kind == "advocc"

    def statement(self) -> dict[str, Any]:
        """The protocol in words and lists, as it stands beside the numbers."""
        return {
            "id": self.id,
            "title": self.title,
            "joint_count": len(self.joints),
            "joints": list(self.joints),
            "joint_meaning": self.skeleton.name,
            "root": list(self.root),
            "sampling": asdict(self.sampling) | {"subjects": list(self.sampling.subjects)},
            "occlusion": None if self.occlusion is None else asdict(self.occlusion),
            "average": "mean of the action means" if self.by_action else "mean over records",
        }


_TEST = Sampling(split="test")
_H36M = Sampling(subjects=("S9", "S11"), every=5)
_PELVIS = ("pelvis",)
_ALL_17 = (H36M_17, H36M_17.joints, _PELVIS)
_LSP = (LSP_14, LSP_14.joints, _PELVIS)
_SMPL = (SMPL_24, (*LIMB_12, "neck", "head"), _PELVIS)
_LIMBS = (H36M_17, LIMB_12, ("left_hip", "right_hip"))
_ALL_BUT_PELVIS = (H36M_17, H36M_17.joints[1:], _PELVIS)
"""Skeleton, joints, root."""
_ADVOCC = Protocol("", "AdvOcc, {} px: own worst placement, visible joints", *_LSP, sampling=Sampling("test", every=30))
_OCC = Protocol("", "one {}/256 patch on a limb, 12 limb joints, mid-hip aligned", *_LIMBS, sampling=_TEST)

_BASE = (
    Protocol("h36m-p1", "Human3.6M, MPJPE", *_ALL_17, ("mpjpe",), _H36M, by_action=True),
    Protocol("h36m-p2", "Human3.6M, PA-MPJPE", *_ALL_17, ("pa_mpjpe",), _H36M, by_action=True),
    Protocol("3dpw-14", "3DPW, 14 LSP joints", *_LSP, sampling=_TEST),
    Protocol("3dpw-occ", "3DPW-Occ: 17 sequences of all splits", *_LSP, sampling=Sampling(only_3dpw_occ=True)),
    *(
        replace(_ADVOCC, id=f"advocc-{n}", title=_ADVOCC.title.format(n), occlusion=Occlusion("advocc", n))
        for n in SIZES
    ),
    Protocol(
        "mpi-inf-3dhp", "MPI-INF-3DHP, 16 joints without the pelvis", *_ALL_BUT_PELVIS, ("pck", "auc", "mpjpe"), _TEST
    ),
    Protocol("limb-12", "12 limb joints, mid-hip aligned", *_LIMBS, sampling=_TEST),
    Protocol("all-17", "17 joints, pelvis-aligned", *_ALL_17, sampling=_TEST),
    *(replace(_OCC, id=f"occ-{n}", title=_OCC.title.format(n), occlusion=Occlusion("occ", n)) for n in SIZES),
)
_JOINT_SETS = (
    ("smpl14", "12 limb joints, neck and head of SMPL's 24 joints", _SMPL),
    ("limb12", "12 limb joints, mid-hip aligned", _LIMBS),
)
"""The 14-joint protocols are there on these, too, under their own names, for datasets without the top of the head."""

PROTOCOLS: dict[str, Protocol] = {}
for _base in _BASE:
    PROTOCOLS[_base.id] = _base
    for _name, _title, (_skeleton, _joints, _root) in _JOINT_SETS if _base.skeleton == LSP_14 else ():
        _id, _title = f"{_base.id}-{_name}", f"{_base.title} ({_title})"
        PROTOCOLS[_id] = replace(_base, id=_id, title=_title, skeleton=_skeleton, joints=_joints, root=_root)


def parse_protocols(text: str, every: int | None = None, split: str | None = None) -> tuple[Protocol, ...]:
    """'h36m-p1,h36m-p2' -> protocols; `every` and `split` ('all': every one) replace a protocol's own sampling."""
    names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [name for name in names if name not in PROTOCOLS]
    if unknown or not names:
        raise InputError(f"no protocol is called {', '.join(unknown) or 'nothing'}; choose from {', '.join(PROTOCOLS)}")
    if every is not None and every < 1:
        raise InputError(f"--every must be 1 or more, got {every}")
    chosen = []
    for protocol in (PROTOCOLS[name] for name in names):
        sampling = protocol.sampling if every is None else replace(protocol.sampling, every=every)
        if split is not None:
            sampling = replace(sampling, split=None if split == "all" else split)
        chosen.append(replace(protocol, sampling=sampling))
    return tuple(chosen)


def select_records(protocol: Protocol, dataset: Records) -> np.ndarray:
    """Row numbers of the records that the protocol counts, in dataset order; never none."""
    sampling = protocol.sampling
    wanted: dict[str, tuple[str, ...]] = {} if sampling.split is None else {"split": (sampling.split,)}
    if sampling.subjects:
        wanted["subject"] = sampling.subjects
    rows = dataset.select(**wanted)
    if sampling.only_3dpw_occ:
        sequences = dataset.column("sequence")
        rows = np.array([row for row in rows if in_3dpw_occ(str(sequences[row]))], dtype=rows.dtype)
    if not len(rows):
        some = {name: sorted(set(dataset.column(name)))[:12] for name in wanted or ("sequence",)}
        held = "; ".join(f"{name}s {', '.join(values)}" for name, values in some.items())
        raise InputError(
            f"protocol {protocol.id} finds no record in '{dataset.name}': it wants "
            f"{wanted or 'the 17 sequences of 3DPW-Occ'}, the dataset holds {held}"
            + ("; another split is chosen by --split NAME" if "split" in wanted else "")
        )
    if sampling.every == 1:
        return rows
    lines = {int(row): dataset.index[int(row)] for row in rows}
    kept: list[int] = []
    last: dict[tuple[str, ...], int] = {}
    for track, frame, row in sorted((_track(line), line["frame"], row) for row, line in lines.items()):
        if track not in last or frame - last[track] >= sampling.every:
            kept.append(row)
            last[track] = frame
    return np.array(sorted(kept), dtype=rows.dtype)


def _track(line: dict[str, Any]) -> tuple[str, ...]:
    """One person seen by one camera in one take. The view is the video or the folder of the picture, since a
    moving camera has other parameters in every frame."""
    image = line["image"] or ""
    view = image.partition("#")[0] if "#" in image else image.rpartition("/")[0]
    return line["subject"], line["action"], line["sequence"], view, str(line["extra"].get("person", ""))
