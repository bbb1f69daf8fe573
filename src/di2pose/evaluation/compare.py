"""`di2pose compare`: two evaluations of the same records, number by number, with paired bootstrap intervals."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from di2pose.errors import InputError
from di2pose.evaluation.bootstrap import bootstrap_interval
from di2pose.evaluation.report import FORMAT_VERSION, METRICS, EvaluationReport
from di2pose.evaluation.scoring import SHARES
from di2pose.files import reading
from di2pose.text_table import aligned


@dataclass(frozen=True)
class Difference:
    """B minus A in mm: negative means that B is better (of PCK and AUC, in per cent: positive)."""

    protocol: str
    key: str
    count: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    wins_b: float
    """Share of the records where B is the better one; ties count half."""


def compare_reports(
    a: EvaluationReport, b: EvaluationReport, seed: int = 0, by: Literal["record", "sequence"] = "record"
) -> list[Difference]:
    """Every number that both reports have, paired by record."""
    with reading("one of the two reports", "run the evaluation again"):
        return _differences(a, b, seed, by)


def _differences(
    a: EvaluationReport, b: EvaluationReport, seed: int, by: Literal["record", "sequence"]
) -> list[Difference]:
    found = []
    for protocol in _shared_protocols(a, b):
        first, second = a["records"][protocol], b["records"][protocol]
        place = {name: at for at, name in enumerate(second["ids"])}
        both = np.array([(at, place[name]) for at, name in enumerate(first["ids"]) if name in place])
        if not len(both):
            raise InputError(f"{protocol}: the two evaluations have no record in common")
        groups = np.array(first["ids" if by == "record" else "sequences"])[both[:, 0]]
        for key in (key for key in first["values"] if key in second["values"]):
            pairs = [np.array(part["values"][key], float)[both[:, k]] for k, part in enumerate((first, second))]
            good = np.isfinite(pairs).all(0)
            if not good.any():
                continue
            errors = np.stack(pairs, axis=-1)[good]
            difference = errors[:, 1] - errors[:, 0]
            interval = bootstrap_interval(difference, groups[good], np.random.default_rng(seed))
            better = difference > 0 if key.split("/")[2] in SHARES else difference < 0
            wins = float(better.mean() + 0.5 * (difference == 0).mean())
            mean_a, mean_b = errors.mean(0).tolist()
            mean = float(difference.mean())
            found.append(Difference(protocol, key, len(errors), mean_a, mean_b, mean, *interval, wins))
    if not found:
        raise InputError("the two evaluations share protocols but no number: run both with the same --hypotheses")
    return found


def _shared_protocols(a: EvaluationReport, b: EvaluationReport) -> list[str]:
    first, second = ({protocol["id"]: protocol for protocol in report["run"]["protocols"]} for report in (a, b))
    shared = [name for name in first if name in second]
    if not shared:
        raise InputError(f"no protocol in common: {', '.join(first)} against {', '.join(second)}")
    for name in shared:
        for part in first[name].keys() | second[name].keys():
            here, there = first[name].get(part), second[name].get(part)
            if here != there:
                what = "the records or their true poses" if part == "truth" else part
                raise InputError(
                    f"{name} was not run alike: {what} differ ({a['run']['dataset']}: {here}; "
                    f"{b['run']['dataset']}: {there}), so the numbers cannot be compared"
                )
        for part in ("seed", "textures", "occ_roi") if first[name]["occlusion"] is not None else ():
            here, there = a["run"][part], b["run"][part]
            if here != there:
                raise InputError(
                    f"{name}: the patches differ, because {part} is {here} in one run and {there} in the other"
                )
    return shared


def compare(
    a: tyro.conf.Positional[Path],
    b: tyro.conf.Positional[Path],
    *,
    seed: int = 0,
    by: Literal["record", "sequence"] = "record",
) -> int:
    """Paired differences of two evaluations (B minus A: negative means that B is better).

    Means are over the records that both have, also where a protocol's own average is over actions.

    Args:
        a: report.json of the first evaluation, or its folder.
        b: report.json of the second evaluation, or its folder.
        seed: seed of the bootstrap.
        by: what the bootstrap draws. Frames of a video are alike: draw whole sequences for honest intervals.
    """
    first, second = read_report(a), read_report(b)
    print(f"A: {first['run']['predictor']}\nB: {second['run']['predictor']}\n")
    head = ["protocol", "H/estimate", "metric", "n", "A", "B", "B - A", f"95 % interval (by {by})", "B better"]
    rows = []
    for line in compare_reports(first, second, seed, by):
        hypotheses, estimate, metric = line.key.split("/")
        numbers = [f"{line.mean_a:.2f}", f"{line.mean_b:.2f}", f"{line.difference:+.2f}"]
        numbers += [f"{line.low:+.2f} to {line.high:+.2f}", f"{line.wins_b:.1%}"]
        rows.append([line.protocol, f"{hypotheses}/{estimate}", METRICS[metric][0], str(line.count), *numbers])
    print(aligned(head, rows))
    alone = first["records"].keys() ^ second["records"].keys()
    if alone:
        print(f"\nonly in one of the two: {', '.join(sorted(alone))}")
    return 0


def read_report(path: Path) -> EvaluationReport:
    file = path / "report.json" if path.is_dir() else path
    try:
        report: EvaluationReport = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the evaluation {file}: {error}") from error
    if not isinstance(report, dict) or not {"run", "records", "numbers"} <= report.keys():
        raise InputError(f"{file} is not a report.json of `di2pose evaluate` (of one model)")
    if not isinstance(report.get("format_version"), int):
        raise InputError(f"{file} does not tell its format version: run the evaluation again")
    if report["format_version"] > FORMAT_VERSION:
        raise InputError(
            f"{file} is of format version {report['format_version']}, this program reads up to {FORMAT_VERSION}: read "
            "it with the newer one that wrote it"
        )
    return report
