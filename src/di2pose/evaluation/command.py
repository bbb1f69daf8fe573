"""`di2pose evaluate`: named protocols on a checkpoint or on a file of poses."""

import hashlib
from pathlib import Path
from typing import Annotated

import tyro

from di2pose.data.sample import Dataset
from di2pose.errors import InputError
from di2pose.evaluation.evaluate import evaluate_dataset, torchrun_rank
from di2pose.evaluation.predictor import PredictionFile, Predictor, load_predictor
from di2pose.evaluation.protocol import PROTOCOLS, parse_protocols
from di2pose.evaluation.report import text_table
from di2pose.image.find import Finder
from di2pose.occlusion.patch_textures import DtdTextures


def evaluate(
    checkpoint: Annotated[
        tyro.conf.Positional[Path | None], tyro.conf.arg(help="checkpoint folder", metavar="CHECKPOINT")
    ] = None,
    *,
    data: Path,
    out: Path,
    protocol: Annotated[
        str, tyro.conf.arg(help=f"one or several, with commas between them: {', '.join(PROTOCOLS)}")
    ] = "limb-12",
    predictions: Path | None = None,
    hypotheses: str = "1",
    steps: int = 25,
    seed: int = 0,
    batch: int = 16,
    every: int | None = None,
    split: str | None = None,
    textures: Path | None = None,
    images: Path | None = None,
    worst: int = 20,
) -> int:
    """Evaluate a checkpoint, a peer (blazepose-heavy, -full, -lite) or anybody's poses on a prepared dataset.

    Prints a table and writes report.json, report.md, report.tex and worst.html to --out. The same command goes on with
    a run that was stopped; under torchrun the records are shared among the ranks.

    Args:
        data: prepared dataset (made by `di2pose data prepare`).
        out: folder for the results.
        predictions: npz file with ids and joints_mm (n, J, 3) or (n, H, J, 3) instead of a checkpoint.
        hypotheses: hypothesis counts to report, e.g. 1,8.
        steps: reverse steps of the sampler.
        seed: seeds sampler noise, patch places and textures, each per record.
        batch: pictures per call of the model.
        every: keep a frame of every so many, instead of the protocol's own sampling.
        split: dataset split, instead of the protocol's own.
        textures: folder of the Describable Textures Dataset for the patches (left out: procedural textures).
        images: where the pictures lie, if not where the prepared dataset says.
        worst: how many of the worst records the HTML page shows per protocol.
    """
    if (checkpoint is None) == (predictions is None):
        raise InputError("give either a CHECKPOINT folder or --predictions FILE.npz")
    chosen = parse_protocols(protocol, every, split)
    counts = _counts(hypotheses)
    dataset = Dataset(data, images)
    source = predictions or checkpoint
    assert source is not None
    predictor: Predictor
    if predictions is not None:
        predictor, regions = PredictionFile(source), None
    else:
        predictor, regions = load_predictor(source), Finder()
    report = evaluate_dataset(
        predictor,
        dataset,
        chosen,
        out,
        name=f"{source.name} ({_fingerprint(source)})" if source.exists() else str(source),
        hypotheses=counts,
        steps=steps,
        seed=seed,
        batch=batch,
        roi_of=regions,
        textures=None if textures is None else DtdTextures(textures),
        worst=worst,
    )
    if report is None:
        rank, ranks = torchrun_rank()
        print(f"rank {rank} of {ranks} is done; the rank that finishes last writes the report")
    else:
        print(text_table(report) + f"\n\nwritten: {out / 'report.json'}, report.md, report.tex, worst.html")
    return 0


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"--hypotheses takes counts with commas between them, e.g. 1,8; got '{text}'") from error


def _fingerprint(path: Path) -> str:
    """Tells weights and prediction files apart that lie under the same name."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]
