"""`di2pose evaluate`: named protocols on one or several models, or on a file of poses, in one table."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import tyro

from di2pose.baselines.peer import BlazePosePeer
from di2pose.device import Precision, choose_device, precision_of
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import CachedRecords, open_records
from di2pose.evaluation.evaluate import SEARCH_STEPS, evaluate_dataset, torchrun_rank
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.predictor import Predictor, fingerprint, load_predictor
from di2pose.evaluation.protocol import PROTOCOLS, parse_protocols
from di2pose.evaluation.report import EvaluationReport
from di2pose.evaluation.report_text import markdown, write_report
from di2pose.image.detect import PersonMatcher
from di2pose.network import Di2PoseNetwork
from di2pose.occlusion.patch_textures import DtdTextures

HYPOTHESES = 8


def evaluate(
    models: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL")] = (),
    *,
    data: Path,
    out: Path,
    protocol: Annotated[
        str, tyro.conf.arg(help=f"one or several, with commas between them: {', '.join(PROTOCOLS)}")
    ] = "limb-12",
    predictions: Path | None = None,
    hypotheses: str | None = None,
    steps: str | None = None,
    search_steps: int = SEARCH_STEPS,
    seed: int = 0,
    seeds: str | None = None,
    batch: int = 16,
    every: int | None = None,
    split: str | None = None,
    limit: int | None = None,
    plain: bool = False,
    second_look: bool = True,
    flip_test: bool = True,
    true_boxes: bool = False,
    fit: bool = True,
    temperature: float | None = None,
    top_r: float | None = None,
    encoder: str | None = None,
    device: str = "cpu",
    precision: Precision = "auto",
    textures: Path | None = None,
    images: Path | None = None,
    worst: int = 20,
    heatmaps: int = 8,
) -> int:
    """Evaluate models of any kind, a peer or anybody's poses on a prepared dataset or a feature cache.

    Prints tables and writes report.json, report.md, report.tex and worst.html to --out; of several models each to
    --out/NAME, and one joint table to --out. The same command goes on with a run that was stopped; under torchrun the
    records are shared among the ranks.

    Args:
        models: checkpoint folders, runs, names in the package, or peers (blazepose-heavy, -full, -lite)
        data: prepared dataset (made by `di2pose data prepare`), or feature cache (`di2pose features`, `people
            features`): crops with known poses, without pictures.
        out: folder for the results.
        predictions: npz file with ids and joints_mm (n, J, 3) or (n, H, J, 3) instead of a model.
        hypotheses: hypothesis counts to report, e.g. 1,8; left out: 8 of a model, 1 of a peer or a prediction file.
        steps: reverse steps of the sampler; left out: the model's own. Several, with commas: a table of them all.
        search_steps: reverse steps of AdvOcc's search, at most; the worst placements are drawn in --steps.
        seed: seeds sampler noise, patch places and textures, each per record.
        seeds: several of them, e.g. 0,1,2: figures are means over their noise; patches are the first one's.
        batch: pictures per call of the model.
        every: keep a frame of every so many, instead of the protocol's own sampling.
        split: dataset split, instead of the protocol's own; `all` takes every record.
        limit: only the first so many records.
        plain: of a cache of rendered people only those with nothing before them and nothing of them outside the
            picture.
        second_look: look again at people where the model is surer (pictures only).
        flip_test: look at the crops' mirror images, too.
        true_boxes: crop people by the records' own boxes, as the paper does, instead of looking for them as a user's
            picture is (pictures only).
        fit: fit hypotheses to the landmarks, as for a user; without it they are as the model draws them, which is what
            methods are compared by (feature caches only).
        temperature: of the sampler: below 1 tokens are drawn more sharply than the model says; left out: the model's.
        top_r: of the sampler: only the most probable codes that hold this mass are drawn; left out: the model's.
        encoder: another image encoder than the model's own, e.g. vitpose:FOLDER.
        device: cpu, cuda, mps; under torchrun `cuda` is each rank's own GPU.
        precision: of the model; auto: bfloat16 on a GPU that has it, else float32.
        textures: folder of the Describable Textures Dataset for the patches (left out: procedural textures).
        images: where the pictures lie, if not where the prepared dataset says.
        worst: how many of the worst records the HTML page shows per protocol.
        heatmaps: of how many records of an AdvOcc protocol the search is drawn, to --out/heatmaps.
    """
    if bool(models) == (predictions is not None):
        raise InputError("give either a MODEL (checkpoint folder, run, name) or --predictions FILE.npz")
    chosen, numbers = parse_protocols(protocol, every, split), _integers(seeds, "--seeds") or (seed,)
    records, counts = open_records(data, images), _integers(hypotheses, "--hypotheses")
    # One row of the joint table each: its name, the name with what tells its weights from others, and its counts.
    contestants: list[tuple[str, str, Predictor, tuple[int, ...], int | None]] = []
    if predictions is not None:
        file = PredictionFile(predictions)
        contestants.append((predictions.name, f"{predictions.name} ({file.fingerprint})", file, counts or (1,), None))
    for model in models:
        predictor = load_predictor(
            model,
            records,
            device=device,
            encoder=encoder,
            second_look=second_look,
            flip_test=flip_test,
            true_boxes=true_boxes,
            fit=fit,
            precision=precision,
        )
        path, several = Path(model), _integers(steps, "--steps")
        name, run = (path.resolve().name, path.resolve().parent.name) if path.exists() else (model, "")
        name = {"model": run, "best": f"{run}-best"}.get(name, name)
        if isinstance(predictor, BlazePosePeer):  # draws nothing: one hypothesis tells all
            contestants.append((name, name + " (true boxes)" * true_boxes, predictor, counts or (1,), None))
            continue
        looks = ["one look"] * (not second_look) + ["no flip test"] * (not flip_test) + [encoder] * bool(encoder)
        looks += ["true boxes"] * true_boxes + ["not fitted"] * (not fit)
        if (dtype := precision_of(precision, choose_device(device))) != torch.float32:
            looks.append(str(dtype).removeprefix("torch."))
        drawing = {"temperature": temperature, "top_r": top_r}
        if changes := {key: value for key, value in drawing.items() if value is not None}:
            if not isinstance(predictor.model, Di2PoseNetwork):
                raise InputError(f"--temperature and --top-r: {model} is of kind '{predictor.model.kind}', not di2pose")
            predictor.model.draw_with(**changes)
            looks += [f"{key} {value:g}" for key, value in changes.items()]
        title = f"{name} ({', '.join([fingerprint(predictor.model), *map(str, looks)])})"
        for count in several or (None,):
            row = f"{name}-{count}-steps" if len(several) > 1 else name
            contestants.append((row, title, predictor, counts or (HYPOTHESES,), count))
    regions = None if predictions is not None or isinstance(records, CachedRecords) else PersonMatcher()
    reports: dict[str, EvaluationReport | None] = {}
    runs: dict[str, Callable[[], EvaluationReport | None]] = {}
    for row, title, contestant, drawn, count in contestants:
        name = next(word for word in (row, *(f"{row}-{k}" for k in range(2, 1000))) if word not in reports)
        runs[name] = partial(
            evaluate_dataset,
            contestant,
            records,
            chosen,
            out if len(contestants) == 1 else out / name,
            name=title,
            hypotheses=drawn,
            steps=count,
            search_steps=search_steps,
            seed=numbers[0],
            more_seeds=numbers[1:],
            batch=batch,
            roi_of=regions,
            textures=None if textures is None else DtdTextures(textures),
            worst=worst,
            heatmaps=heatmaps,
            limit=limit,
            plain=plain,
        )
        reports[name] = runs[name]()
    if None in reports.values() and reports[name] is not None:  # the last rank: what others finished is done by now
        reports = {name: report or runs[name]() for name, report in reports.items()}
    done = {name: report for name, report in reports.items() if report is not None}
    if len(done) < len(reports):
        rank, ranks = torchrun_rank()
        print(f"rank {rank} of {ranks} is done; the rank that finishes last writes the report")
        return 0
    if len(done) == 1:
        done = dict(zip([""], done.values(), strict=True))  # in the only table there is no need of a name
    else:
        write_report(done, out)
    page = ", worst.html" if (out / "worst.html").is_file() else ""
    print(markdown(done) + f"\nwritten: {out / 'report.json'}, report.md, report.tex{page}")
    return 0


def _integers(text: str | None, flag: str) -> tuple[int, ...]:
    """'1,8' -> (1, 8); empty where nothing is given."""
    try:
        return () if text is None else tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"{flag} takes counts with commas between them, e.g. 1,8; got '{text}'") from error
