"""Tables of what several hypotheses are worth: calibration, and spread against error."""

from collections.abc import Mapping, Sequence

from di2pose.evaluation.report import EvaluationReport, Json
from di2pose.text_table import markdown as markdown_table

Reports = Mapping[str, EvaluationReport]
"""Name of a model -> its report; a single model goes without a name."""
Table = tuple[list[str], list[list[str]]]
"""Head and rows."""


def calibration_table(reports: Reports) -> Table:
    """A row for all, seen and hidden joints under each protocol and number of hypotheses: energy score and coverage."""
    head = [*(["model"] * (len(reports) > 1)), "protocol", "hypotheses", "over", "joints", "energy, mm"]
    head += ["coverage of 90 % balls", "calibrated"]
    rows = []
    for name, report in reports.items():
        for protocol, counts in report["calibration"].items():
            for count, groups in counts.items():
                for group in (group for group in ("all", "seen", "hidden") if group in groups):
                    f = groups[group]
                    cells = [with_interval(f["energy_mm"], f["energy_mm_interval"], "{:.1f}")]
                    for part in ("coverage_90", "calibrated_90"):
                        cells.append(with_interval(f[part], f[f"{part}_interval"], "{:.1%}"))
                    rows.append([*([name] * (len(reports) > 1)), protocol, count, group, str(f["joints"]), *cells])
    return head, rows


def spread_text(figures: dict[str, Json]) -> str:
    """Raw spread of the hypotheses against the error of their mean, by group of joints."""
    rows = []
    for group, f in figures.items():
        if group != "hidden_over_seen":
            mm = [rounded(f["spread_mm"]), rounded(f["error_mm"]), rounded(f["rank_correlation"], 3)]
            rows.append([group.replace("_", " "), str(f["joints"]), *mm])
    table = markdown_table(["raw spread", "joints", "spread, mm", "error of the mean, mm", "rank correlation"], rows)
    if (gap := figures.get("hidden_over_seen")) is None:
        return table
    return (
        f"{table}\n\nHidden over seen: spread {gap['spread']:.2f}, error {gap['error']:.2f}; "
        f"the one over the other {gap['spread_over_error']:.2f}."
    )


def with_interval(value: float | None, interval: Sequence[float] | None, form: str) -> str:
    """'12.3 (11.0 to 13.9)'; the value alone where it has no interval."""
    if value is None or interval is None:
        return "-" if value is None else form.format(value)
    return f"{form.format(value)} ({form.format(interval[0])} to {form.format(interval[1])})"


def rounded(value: float | None, places: int = 1) -> str:
    return "-" if value is None else f"{value:.{places}f}"
