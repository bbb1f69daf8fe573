"""The three ways over a dataset: clean pictures, one patch per picture, and the search for the worst patch.

Each gives one line per record (`record_log`). All protocols of a way share its predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from di2pose.data.sample import SEEN, UNKNOWN, Sample
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import CachedRecords, Records
from di2pose.evaluation.ensemble import EnsembleResult, calibrated_hits, ensemble_result, listed
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.predictor import Predictions, Predictor
from di2pose.evaluation.protocol import Occlusion
from di2pose.evaluation.record_log import RecordLine, RecordResult
from di2pose.evaluation.scoring import STATES, Scorer, headline, joint_groups
from di2pose.image.crop import Roi
from di2pose.occlusion.patch_textures import TextureSource
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, advocc_visible, occlude_limb, person_crop
from di2pose.pose.aggregate import covariance
from di2pose.pose.metrics import joint_errors
from di2pose.pose.skeleton import H36M_17


@dataclass
class Work:
    """What every way needs."""

    predictor: Predictor
    dataset: Records
    hypotheses: tuple[int, ...]
    steps: int | None
    seeds: tuple[int, ...]
    """Of the sampler's noise; the first also of patches and textures."""
    batch: int
    textures: TextureSource
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None
    """The detector's ROI on the clean picture, for the size of the `occ` patch; None: from the record's box."""
    scorers: dict[str, Scorer] = field(default_factory=dict)
    selected: dict[str, frozenset[int]] = field(default_factory=dict)
    """Protocol -> the dataset rows that it counts."""
    search_steps: int | None = None
    """Fewer reverse steps, for AdvOcc's search only: what it finds is then predicted with `steps`."""

    def wanted(self, row: int, occlusion: Occlusion | None) -> list[Scorer]:
        """Of the protocols of one way, those that count the record."""
        mine = [scorer for scorer in self.scorers.values() if scorer.protocol.occlusion == occlusion]
        return [scorer for scorer in mine if row in self.selected[scorer.protocol.id]]

    def predict(
        self, images: Sequence[Image.Image | None], samples: Sequence[Sample], seed: int, steps: int | None = None
    ) -> Predictions:
        most = max(self.hypotheses)
        found = self.predictor.predict(images, samples, most, steps or self.steps, seed)
        if isinstance(found, np.ndarray):
            found = Predictions(found)
        poses = found.samples_mm
        expected = (len(samples), most, next(iter(self.scorers.values())).prediction_skeleton.count, 3)
        if poses.shape != expected:
            raise InputError(f"the predictor gave poses of shape {poses.shape}, expected {expected}")
        broken = [s.id for s, pose in zip(samples, poses, strict=True) if not np.isfinite(pose).all()]
        if broken:
            raise InputError(f"the predictor gave NaN or infinite joints for record {broken[0]}")
        return found

    def picture(self, sample: Sample, patched: bool) -> Image.Image | None:
        if isinstance(self.predictor, PredictionFile) or sample.image is None:
            if patched:
                raise InputError("the record has no picture to put a patch on")
            return None
        return self.dataset.read_image(sample)


def run_advocc(work: Work, row: int, occlusion: Occlusion) -> RecordLine:
    """The search for the worst patches on one record, and what happens there."""
    sample, seed = work.dataset[row], work.seeds[0]
    try:
        image = work.picture(sample, patched=True)
        assert image is not None
        if sample.box is None:
            raise InputError("the record has no box, which the 256x192 crop needs")
        crop = person_crop(sample.box)
        truths = [(scorer, *scorer.truth(sample), scorer.points(sample)) for scorer in work.wanted(row, occlusion)]
    except (InputError, OSError) as error:
        return {"row": row, "id": sample.id, "skipped": str(error)}
    placements = advocc_placements(occlusion.size)

    def predict(chosen: Sequence[int], steps: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Of the clean picture, and with the patch at the chosen placements."""
        chunks = []
        for start in range(0, len(chosen), work.batch):
            places = [placements[k] for k in chosen[start : start + work.batch]]
            pictures = [advocc_image(image, sample.id, crop, place, seed, work.textures) for place in places]
            chunks.append(work.predict(pictures, [sample] * len(places), seed, steps).samples_mm)
        return work.predict([image], [sample], seed, steps).samples_mm, np.concatenate(chunks)

    clean, occluded = predict(range(len(placements)), work.search_steps)
    results: dict[str, RecordResult] = {}
    for scorer, truth, known, points in truths:
        visible = torch.from_numpy(np.stack([advocc_visible(points, crop, place) for place in placements])) & known
        search = _worst(work, scorer, clean, occluded, truth, visible)
        if work.search_steps is not None and "worst_placements" in search:
            again = sorted({k for found in search["worst_placements"].values() for k in found})
            whole = occluded.copy()
            quiet, whole[again] = predict(again, None)
            errors = search["placement_errors_mm"]
            search = _worst(work, scorer, quiet, whole, truth, visible, search["worst_placements"])
            search["placement_errors_mm"] = errors  # all of them in the search's steps
        results[scorer.protocol.id] = search
    return {"row": row, "id": sample.id, "results": results}


def _worst(
    work: Work,
    scorer: Scorer,
    clean: Float[np.ndarray, "1 H J 3"],
    occluded: Float[np.ndarray, "P H J 3"],
    truth: Float[Tensor, "K 3"],
    visible: Bool[Tensor, "P K"],
    known: dict[str, list[int]] | None = None,
) -> RecordResult:
    """The placements of the greatest MPJPE, PA-MPJPE, and MPJPE over that of the clean picture, all on the visible
    joints, and what happened there. `known`: placements that were found before, for each number of hypotheses."""
    poses, before = scorer.prediction(occluded), scorer.prediction(clean).expand(len(occluded), -1, -1, -1)
    target = truth.expand(len(occluded), -1, -1)
    values: dict[str, list[float | None]] = {}
    found: dict[str, list[int]] = {}
    ensembles: dict[str, EnsembleResult] = {}
    for count in work.hypotheses:
        key = f"{count}/{headline(count)}"
        after, calm = (scorer.score_pose(p[:, :count].mean(1), target, visible, key) for p in (poses, before))
        errors, pa_errors, clean_errors = after[f"{key}/mpjpe"], after[f"{key}/pa_mpjpe"], calm[f"{key}/mpjpe"]
        if errors.isnan().all():
            return {"skipped": "no placement leaves a visible joint"}
        by = (errors, pa_errors, errors / clean_errors.clamp_min(1e-9))
        greatest = [int(each.nan_to_num(nan=-1.0).argmax()) for each in by]
        worst, aligned, relative = found[str(count)] = greatest if known is None else known[str(count)]
        at_worst = {
            "mpjpe": errors[worst],
            "pa_mpjpe": pa_errors[worst],
            "pa_mpjpe_worst": pa_errors[aligned],
            "clean_mpjpe": clean_errors[worst],
            "clean_pa_mpjpe": calm[f"{key}/pa_mpjpe"][worst],
            "degradation_mpjpe": errors[worst] - clean_errors[worst],
            "mpjpe_relative": errors[relative],
            "pa_mpjpe_relative": pa_errors[relative],
            "clean_mpjpe_relative": clean_errors[relative],
        }
        values |= {f"{key}/{metric}": [_number(value)] for metric, value in at_worst.items()}
        if count > 1:
            here = slice(worst, worst + 1)
            ensembles[str(count)] = ensemble_result([poses[here, :count]], target[here], visible[here])
    return {
        "values": values,
        "pose": _rounded(poses[worst, :count].mean(0)),
        "ensembles": ensembles,
        "worst_placement": {count: places[0] for count, places in found.items()},
        "worst_placements": found,
        "placement_errors_mm": [_number(error) for error in errors.round(decimals=2)],
    }


def run_pictures(work: Work, rows: Sequence[int], occlusion: Occlusion | None) -> list[RecordLine]:
    """Some records as they are, or with one patch on a limb of each."""
    lines: list[RecordLine] = []
    ready: list[tuple[int, Sample, Image.Image | None, Rectangle | None]] = []
    for row in rows:
        sample, patch = work.dataset[row], None
        try:
            image = work.picture(sample, patched=occlusion is not None)
            if image is not None and occlusion is not None:
                roi = None if work.roi_of is None else work.roi_of(sample, image)
                skeleton, size = work.dataset.skeleton, occlusion.size
                found = occlude_limb(image, sample, skeleton, size, work.seeds[0], work.textures, roi)
                image, patch = found.image, found.patch
            ready.append((row, sample, image, patch))
        except (InputError, OSError) as error:
            lines.append({"row": row, "id": sample.id, "skipped": str(error)})
    if not ready:
        return lines
    images, samples = [image for _, _, image, _ in ready], [sample for _, sample, _, _ in ready]
    by_seed = [work.predict(images, samples, seed) for seed in work.seeds]
    for place, (row, sample, _, patch) in enumerate(ready):
        wanted = work.wanted(row, occlusion)
        results = {scorer.protocol.id: _measured(work, scorer, sample, by_seed, place, patch) for scorer in wanted}
        lines.append({"row": row, "id": sample.id, "results": results})
    return lines


def _measured(
    work: Work, scorer: Scorer, sample: Sample, by_seed: Sequence[Predictions], place: int, patch: Rectangle | None
) -> RecordResult:
    """One protocol on the record at `place` of the predictions."""
    try:
        truth, known = scorer.truth(sample)
    except InputError as error:
        return {"skipped": str(error)}
    target, mask = truth[None], known[None]
    visibility = scorer.visibility(sample, patch)
    told = bool((visibility == SEEN).any())
    rest_seen = not told and (
        patch is not None or (isinstance(work.dataset, CachedRecords) and work.dataset.only_hidden_labelled)
    )
    groups = {name: joints & known.numpy() for name, joints in joint_groups(visibility, rest_seen).items()}
    values: dict[str, list[float | None]] = {}

    def note(found: dict[str, Tensor]) -> None:
        for key, value in found.items():
            if bool(value.isfinite()) or key.split("/")[2] in scorer.protocol.metrics:
                values.setdefault(key, []).append(_number(value[0]))

    for name, (poses, skeleton) in by_seed[0].others.items():
        if not scorer.missing(skeleton):
            pose = scorer.prediction(poses[place][None, None], skeleton)[:, 0]
            note(scorer.score_pose(pose, target, mask, f"0/{name}", groups))
    predictions = [scorer.prediction(found.samples_mm[place][None]) for found in by_seed]
    for prediction in predictions:
        for count in work.hypotheses:
            note(scorer.score(prediction, target, mask, count, groups, sample))
    for found in by_seed:
        if found.fitted_mm is not None and not scorer.missing(H36M_17):
            pose = scorer.prediction(found.fitted_mm[place][None, None], H36M_17)[:, 0]
            note(scorer.score_pose(pose, target, mask, f"{max(work.hypotheses)}/fitted", groups))
    result: RecordResult = {"values": values, "pose": _rounded(predictions[0][0].mean(0))}
    if patch is not None:
        result["patch"] = [patch.x0, patch.y0, patch.x1, patch.y1]
    if groups:
        result["groups"] = {name: int(joints.sum()) for name, joints in groups.items()}
        result["visibility"] = np.where(known.numpy(), visibility, UNKNOWN).tolist()
        said = by_seed[0].states
        if told and said is not None and scorer.protocol.skeleton == H36M_17:
            result["said"] = [STATES.index(str(state)) for state in said[place][scorer.columns]]
    if max(work.hypotheses) > 1 and "mpjpe" in scorer.protocol.metrics:
        result["error_mm"], result["spread_mm"] = [], []
        for prediction in predictions:
            off = joint_errors(prediction.mean(1), target, mask)[0]
            trace = covariance(prediction)[0].diagonal(dim1=-2, dim2=-1).sum(-1)
            result["error_mm"].append([round(float(e), 2) if k else None for e, k in zip(off, known, strict=True)])
            result["spread_mm"].append([round(float(s), 2) for s in trace.clamp_min(0).sqrt()])
        result["ensembles"] = {
            str(count): ensemble_result([prediction[:, :count] for prediction in predictions], target, mask)
            for count in work.hypotheses
            if count > 1
        }
        if (hits := _calibrated(scorer, by_seed, place, target, mask)) is not None:
            result["ensembles"][str(max(work.hypotheses))]["calibrated"] = hits
    return result


def _calibrated(
    scorer: Scorer,
    by_seed: Sequence[Predictions],
    place: int,
    target: Float[Tensor, "1 K 3"],
    mask: Bool[Tensor, "1 K"],
) -> list[list[float | None]] | None:
    """Which of the balls round a user's estimate hold the truth; None where there are none, or where the protocol is
    not aligned at the pelvis, as they are."""
    if scorer.protocol.skeleton != H36M_17 or scorer.protocol.root != ("pelvis",):
        return None
    hits = []
    for found in by_seed:
        if found.r90_mm is None:
            return None
        estimate = found.samples_mm[place].mean(0) if found.fitted_mm is None else found.fitted_mm[place]
        pose = scorer.prediction(estimate[None, None], H36M_17)[:, 0]
        hits.append(listed(calibrated_hits(pose, found.r90_mm[place][None, scorer.columns], target, mask)[0], 0))
    return hits


def _number(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None


def _rounded(pose: Tensor) -> list[list[float]]:
    return [[round(float(x), 2) for x in joint] for joint in pose]
