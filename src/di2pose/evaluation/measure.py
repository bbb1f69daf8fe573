"""Measurements on single records: the picture as it is, with one patch on a limb, or with the worst of all patches.

Each gives one line per record for the log. All protocols with the same occlusion share the predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from di2pose.data.sample import SEEN, UNKNOWN, Sample
from di2pose.errors import InputError
from di2pose.evaluation import scoring
from di2pose.evaluation.predictors import Predictions, Predictor
from di2pose.evaluation.protocol import Occlusion
from di2pose.evaluation.records import Records
from di2pose.evaluation.scoring import GROUP_OF, STATES, Key, Scorer, Values, headline, joint_groups
from di2pose.files import Json
from di2pose.image.crop import Roi
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, advocc_visible, occlude_limb, person_crop
from di2pose.occlusion.textures import TextureSource
from di2pose.pose.metrics import joint_errors
from di2pose.pose.skeleton import H36M_17

Numbers = list[float | None]


@dataclass(frozen=True)
class Setup:
    """The settings of a run that measurements depend on."""

    predictor: Predictor
    dataset: Records
    scorers: dict[str, Scorer]
    selected: dict[str, frozenset[int]]
    """Protocol -> the dataset rows that it counts."""
    hypotheses: tuple[int, ...]
    steps: int | None
    seeds: tuple[int, ...]
    """Of the sampler's noise; the first also of patches and textures."""
    batch: int
    textures: TextureSource
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None
    """The detector's ROI on the clean picture, for the size of the `occ` patch; None: from the record's box."""
    search_steps: int | None = None
    """Fewer reverse steps, for AdvOcc's search only: the placements it finds are then predicted with `steps`."""
    reads_pictures: bool = True
    rest_seen: bool = False
    """Only joints under a patch are labelled: the others count as seen."""

    def wanted(self, row: int, occlusion: Occlusion | None) -> list[Scorer]:
        """Of the protocols with this occlusion, those that count the record."""
        same = [scorer for scorer in self.scorers.values() if scorer.protocol.occlusion == occlusion]
        return [scorer for scorer in same if row in self.selected[scorer.protocol.id]]

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
        if self.reads_pictures and sample.image is not None:
            return self.dataset.read_image(sample)
        if patched:
            raise InputError("the record has no picture to put a patch on")
        return None


def search_worst_patch(setup: Setup, row: int, occlusion: Occlusion) -> Json:
    """AdvOcc on one record: the errors at the worst placements of the patch."""
    sample, seed = setup.dataset[row], setup.seeds[0]
    try:
        image = setup.picture(sample, patched=True)
        assert image is not None
        if sample.box is None:
            raise InputError("the record has no box, which the 256x192 crop needs")
        crop = person_crop(sample.box)
        truths = [(scorer, *scorer.truth(sample), scorer.points(sample)) for scorer in setup.wanted(row, occlusion)]
    except (InputError, OSError) as error:
        return {"row": row, "id": sample.id, "skipped": str(error)}
    placements = advocc_placements(occlusion.size)

    def predict(chosen: Sequence[int], steps: int | None) -> tuple[np.ndarray, np.ndarray]:
        """On the clean picture, and with the patch at the chosen placements."""
        chunks = []
        for start in range(0, len(chosen), setup.batch):
            places = [placements[k] for k in chosen[start : start + setup.batch]]
            pictures = [advocc_image(image, sample.id, crop, place, seed, setup.textures) for place in places]
            chunks.append(setup.predict(pictures, [sample] * len(places), seed, steps).samples_mm)
        return setup.predict([image], [sample], seed, steps).samples_mm, np.concatenate(chunks)

    clean, occluded = predict(range(len(placements)), setup.search_steps)
    results: dict[str, Json] = {}
    for scorer, truth, known, points in truths:
        visible = torch.from_numpy(np.stack([advocc_visible(points, crop, place) for place in placements])) & known
        found = _at_worst(setup, scorer, clean, occluded, truth, visible)
        if setup.search_steps is not None and "worst_placements" in found:
            worst, errors = found["worst_placements"], found["placement_errors_mm"]
            again = sorted({k for each in worst.values() for k in each})
            whole = occluded.copy()
            quiet, whole[again] = predict(again, None)
            found = _at_worst(setup, scorer, quiet, whole, truth, visible, worst)
            found["placement_errors_mm"] = errors  # all of them in the search's steps
        results[scorer.protocol.id] = found
    return {"row": row, "id": sample.id, "results": results}


def _at_worst(
    setup: Setup,
    scorer: Scorer,
    clean: Float[np.ndarray, "1 H J 3"],
    occluded: Float[np.ndarray, "P H J 3"],
    truth: Float[Tensor, "K 3"],
    visible: Bool[Tensor, "P K"],
    known: dict[str, list[int]] | None = None,
) -> Json:
    """Errors on the visible joints at the placements of the greatest MPJPE, PA-MPJPE, and MPJPE over that of the clean
    picture. `known`: placements that were found before, for each number of hypotheses."""
    poses, before = scorer.prediction(occluded), scorer.prediction(clean).expand(len(occluded), -1, -1, -1)
    target = truth.expand(len(occluded), -1, -1)
    result: Json = {"values": [], "joints": {}, "worst_placements": {}}
    for count in setup.hypotheses:
        name = headline(count)
        scores = (scorer.score_pose(p[:, :count].mean(1), target, visible, count, name) for p in (poses, before))
        after, calm = ({metric: errors for (_, _, metric), errors in each.items()} for each in scores)
        errors, pa_errors, clean_errors = after["mpjpe"], after["pa_mpjpe"], calm["mpjpe"]
        if errors.isnan().all():
            return {"skipped": "no placement leaves a visible joint"}
        criteria = (errors, pa_errors, errors / clean_errors.clamp_min(1e-9))
        greatest = [int(each.nan_to_num(nan=-1.0).argmax()) for each in criteria]
        worst, aligned, relative = greatest if known is None else known[str(count)]
        result["worst_placements"][str(count)] = [worst, aligned, relative]
        figures = {
            "mpjpe": errors[worst],
            "pa_mpjpe": pa_errors[worst],
            "pa_mpjpe_worst": pa_errors[aligned],
            "clean_mpjpe": clean_errors[worst],
            "clean_pa_mpjpe": calm["pa_mpjpe"][worst],
            "degradation_mpjpe": errors[worst] - clean_errors[worst],
            "mpjpe_relative": errors[relative],
            "pa_mpjpe_relative": pa_errors[relative],
            "clean_mpjpe_relative": clean_errors[relative],
        }
        result["values"] += [(count, name, metric, 1, _listed(value[None])) for metric, value in figures.items()]
        if count > 1:
            here = slice(worst, worst + 1)
            result["joints"][str(count)] = _joint_figures([poses[here, :count]], target[here], visible[here])
    result["pose"] = poses[worst, :count].mean(0).numpy().round(2).tolist()
    result["placement_errors_mm"] = _listed(errors, 2)
    return result


def measure_pictures(setup: Setup, rows: Sequence[int], occlusion: Occlusion | None) -> list[Json]:
    """Some records as they are, or with one patch on a limb of each."""
    lines: list[Json] = []
    ready: list[tuple[int, Sample, Image.Image | None, Rectangle | None]] = []
    for row in rows:
        sample, patch = setup.dataset[row], None
        try:
            image = setup.picture(sample, patched=occlusion is not None)
            if image is not None and occlusion is not None:
                roi = None if setup.roi_of is None else setup.roi_of(sample, image)
                skeleton, size = setup.dataset.skeleton, occlusion.size
                found = occlude_limb(image, sample, skeleton, size, setup.seeds[0], setup.textures, roi)
                image, patch = found.image, found.patch
            ready.append((row, sample, image, patch))
        except (InputError, OSError) as error:
            lines.append({"row": row, "id": sample.id, "skipped": str(error)})
    if not ready:
        return lines
    images, samples = [image for _, _, image, _ in ready], [sample for _, sample, _, _ in ready]
    by_seed = [setup.predict(images, samples, seed) for seed in setup.seeds]
    for place, (row, sample, _, patch) in enumerate(ready):
        wanted = setup.wanted(row, occlusion)
        results = {scorer.protocol.id: _measured(setup, scorer, sample, by_seed, place, patch) for scorer in wanted}
        lines.append({"row": row, "id": sample.id, "results": results})
    return lines


def _measured(
    setup: Setup, scorer: Scorer, sample: Sample, by_seed: Sequence[Predictions], place: int, patch: Rectangle | None
) -> Json:
    """One protocol on the record at `place` of the predictions."""
    try:
        truth, known = scorer.truth(sample)
    except InputError as error:
        return {"skipped": str(error)}
    target, mask, most = truth[None], known[None], max(setup.hypotheses)
    visibility = scorer.visibility(sample, patch)
    labelled = bool((visibility == SEEN).any())
    rest_seen = not labelled and (patch is not None or setup.rest_seen)
    groups = {name: joints & known.numpy() for name, joints in joint_groups(visibility, rest_seen).items()}
    values: dict[Key, Numbers] = {}

    def note(found: Values) -> None:
        for key, value in found.items():
            if bool(value.isfinite()) or key[2] in scorer.protocol.metrics:
                values.setdefault(key, []).extend(_listed(value))

    for name, (poses, skeleton) in by_seed[0].others.items():
        if not scorer.missing(skeleton):
            pose = scorer.prediction(poses[place][None], skeleton)
            note(scorer.score_pose(pose, target, mask, 0, name, groups))
    predictions = [scorer.prediction(found.samples_mm[place][None]) for found in by_seed]
    for prediction in predictions:
        for count in setup.hypotheses:
            note(scorer.score(prediction, target, mask, count, groups, sample))
    for found in by_seed:
        if found.fitted_mm is not None and not scorer.missing(H36M_17):
            pose = scorer.prediction(found.fitted_mm[place][None], H36M_17)
            note(scorer.score_pose(pose, target, mask, most, "fitted", groups))
    weights = {metric: int(groups[group].sum()) for metric, group in GROUP_OF.items() if group in groups}
    result: Json = {
        "values": [(*key, weights.get(key[2], 1), numbers) for key, numbers in values.items()],
        "pose": predictions[0][0].mean(0).numpy().round(2).tolist(),
    }
    if patch is not None:
        result["patch"] = [patch.x0, patch.y0, patch.x1, patch.y1]
    if groups:
        result["visibility"] = np.where(known.numpy(), visibility, UNKNOWN).tolist()
        said = by_seed[0].states
        if labelled and said is not None and scorer.protocol.skeleton == H36M_17:
            result["said"] = [STATES.index(str(state)) for state in said[place][scorer.columns]]
    if most > 1 and "mpjpe" in scorer.protocol.metrics:
        result["joints"] = {
            str(count): _joint_figures([prediction[:, :count] for prediction in predictions], target, mask)
            for count in setup.hypotheses
            if count > 1
        }
        if (hits := _calibrated(scorer, by_seed, place, target, mask)) is not None:
            result["joints"][str(most)]["calibrated_90"] = hits
    return result


def _joint_figures(
    by_seed: Sequence[Float[Tensor, "1 H K 3"]], truth: Float[Tensor, "1 K 3"], mask: Bool[Tensor, "1 K"]
) -> dict[str, list[Numbers]]:
    """Of one record, for each seed and joint: the error of the mean, the spread (the root of the trace of the unbiased
    covariance), the energy score, and the level of the ball that just holds the truth; None where it does not count."""
    found: dict[str, list[Numbers]] = {"error_mm": [], "spread_mm": [], "energy_mm": [], "level": []}
    for poses in by_seed:
        error = torch.where(mask, joint_errors(poses.mean(1), truth, mask), torch.nan)
        found["error_mm"].append(_listed(error[0], 2))
        found["spread_mm"].append(_listed(poses.var(1).sum(-1).sqrt()[0], 2))
        found["energy_mm"].append(_listed(scoring.energy_score(poses, truth, mask)[0], 2))
        found["level"].append(_listed(scoring.hypothesis_levels(poses, truth, mask)[0], 5))
    return found


def _calibrated(
    scorer: Scorer, by_seed: Sequence[Predictions], place: int, target: Tensor, mask: Tensor
) -> list[Numbers] | None:
    """1 where the ball round a user's estimate holds the truth, else 0; None where there are no radii, or where the
    protocol is not aligned at the pelvis, as they are."""
    if scorer.protocol.skeleton != H36M_17 or scorer.protocol.root != ("pelvis",):
        return None
    hits = []
    for found in by_seed:
        if found.r90_mm is None:
            return None
        estimate = found.samples_mm[place].mean(0) if found.fitted_mm is None else found.fitted_mm[place]
        pose = scorer.prediction(estimate[None], H36M_17)
        radius = found.r90_mm[place][None, scorer.columns]
        hits.append(_listed(scoring.calibrated_hits(pose, radius, target, mask)[0]))
    return hits


def _listed(values: Tensor | np.ndarray, places: int | None = None) -> Numbers:
    """For JSON: None where not finite."""
    numbers = [float(value) if np.isfinite(value) else None for value in values.tolist()]
    return numbers if places is None else [None if each is None else round(each, places) for each in numbers]
