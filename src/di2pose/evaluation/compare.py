"""`di2pose compare`: two evaluations of the same records, number by number, with paired bootstrap intervals."""

from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from di2pose.errors import InputError, require
from di2pose.evaluation.report import FORMAT_VERSION, KEY, METRICS, Frame, bootstrap_interval
from di2pose.evaluation.scoring import SHARES
from di2pose.files import Json, read_json, reading
from di2pose.text_table import aligned

By = Literal["record", "sequence"]
RESAMPLES = 5000


def compare_reports(a: Json, b: Json, seed: int = 0, by: By = "record") -> Frame:
    """A row for every number that both reports have, paired by record: protocol, hypotheses, estimate, metric, count,
    mean_a, mean_b, difference, low, high, wins_b.

    The difference is B minus A in mm: negative means that B is better (of PCK and AUC, in per cent: positive). `wins_b`
    is the share of the records where B is the better one; ties count half.
    """
    with reading("one of the two reports", "run the evaluation again"):
        rows = []
        for protocol in _shared_protocols(a, b):
            first, second = (_values(report, protocol) for report in (a, b))
            ids = [name for name in first.index if name in second.index]
            if not ids:
                raise InputError(f"{protocol}: the two evaluations have no record in common")
            records = a["records"][protocol]
            groups = dict(zip(records["ids"], records["ids" if by == "record" else "sequences"], strict=True))
            drawn = np.array([groups[name] for name in ids])
            for key in (key for key in first if key in second):
                errors = np.stack([table.loc[ids, key] for table in (first, second)], axis=-1)
                good = np.isfinite(errors).all(1)
                if not good.any():
                    continue
                (mean_a, mean_b), difference = errors[good].mean(0).tolist(), np.diff(errors[good])[:, 0]
                interval = bootstrap_interval(difference, drawn[good], seed, RESAMPLES)
                better = difference > 0 if key[2] in SHARES else difference < 0
                wins = float(better.mean() + 0.5 * (difference == 0).mean())
                rows.append((protocol, *key, len(difference), mean_a, mean_b, difference.mean(), *interval, wins))
        if not rows:
            raise InputError("the two evaluations share protocols but no number: run both with the same --hypotheses")
        columns = ["protocol", *KEY, "count", "mean_a", "mean_b", "difference", "low", "high", "wins_b"]
        return require("pandas", "pandas").DataFrame(rows, columns=columns)


def _values(report: Json, protocol: str) -> Frame:
    """Every record's values: a row for each id, a column for each (hypotheses, estimate, metric)."""
    pandas, records = require("pandas", "pandas"), report["records"][protocol]
    table = pandas.DataFrame(records["values"], index=records["ids"], dtype=float)
    keys = [(int(hypotheses), estimate, metric) for hypotheses, estimate, metric in (key.split("/") for key in table)]
    table.columns = pandas.MultiIndex.from_tuples(keys, names=KEY)
    return table[~table.index.duplicated(keep="last")]


def _shared_protocols(a: Json, b: Json) -> list[str]:
    """Protocols that both reports have; an error where one was not run alike."""
    first, second = ({protocol["id"]: protocol for protocol in report["run"]["protocols"]} for report in (a, b))
    shared = [name for name in first if name in second]
    if not shared:
        raise InputError(f"no protocol in common: {', '.join(first)} against {', '.join(second)}")
    for name in shared:
        parts = sorted(first[name].keys() | second[name].keys())
        pairs = {part: (first[name].get(part), second[name].get(part)) for part in parts}
        if first[name]["occlusion"] is not None:  # the patches depend on these
            pairs |= {part: (a["run"][part], b["run"][part]) for part in ("seed", "textures", "occ_roi")}
        for part, (here, there) in pairs.items():
            if here != there:
                what = "the records or their true poses" if part == "truth" else part
                raise InputError(
                    f"{name} was not run alike: {what} differ ({a['run']['dataset']}: {here}; "
                    f"{b['run']['dataset']}: {there}), so the numbers cannot be compared"
                )
    return shared


def compare(a: tyro.conf.Positional[Path], b: tyro.conf.Positional[Path], *, seed: int = 0, by: By = "record") -> int:
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
    for line in compare_reports(first, second, seed, by).itertuples():
        numbers = [f"{line.mean_a:.2f}", f"{line.mean_b:.2f}", f"{line.difference:+.2f}"]
        numbers += [f"{line.low:+.2f} to {line.high:+.2f}", f"{line.wins_b:.1%}"]
        estimate = f"{line.hypotheses}/{line.estimate}"
        rows.append([line.protocol, estimate, METRICS[line.metric][0], str(line.count), *numbers])
    print(aligned(head, rows))
    alone = first["records"].keys() ^ second["records"].keys()
    if alone:
        print(f"\nonly in one of the two: {', '.join(sorted(alone))}")
    return 0


def read_report(path: Path) -> Json:
    """report.json of one model, or that in a folder; of this program's format version or an older one."""
    file = path / "report.json" if path.is_dir() else path
    report: Json = read_json(file, "expected report.json of `di2pose evaluate`")
    if not isinstance(report, dict) or not {"run", "records", "numbers", "format_version"} <= report.keys():
        raise InputError(f"{file} is not a report.json of `di2pose evaluate` (of one model)")
    if not isinstance(report["format_version"], int) or report["format_version"] > FORMAT_VERSION:
        raise InputError(
            f"{file} is of format version {report['format_version']}, this program reads up to {FORMAT_VERSION}: read "
            "it with the newer one that wrote it"
        )
    return report
