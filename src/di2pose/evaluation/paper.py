"""The paper's own numbers, each with the table it stands in. They are printed beside ours, never used as targets."""

ACTION_HEADINGS = (
    "Dir", "Disc", "Eat", "Gr.", "Phon.", "Phot.", "Pose", "Pur.", "Sit", "SitD.", "Sm.", "Wait", "W.D.", "Walk", "W.T."
)  # fmt: skip

PAPER: dict[tuple[str, str], tuple[float, str]] = {
    ("h36m-p1", "mpjpe"): (49.2, "tab:h36m"),
    ("h36m-p2", "pa_mpjpe"): (39.0, "tab:app_h36m"),  # the mean of the 15 printed values is 39.16 (docs/paper.md, 28)
    ("3dpw-14", "mpjpe"): (79.3, "tab:3dpw"),
    ("3dpw-14", "pa_mpjpe"): (50.1, "tab:3dpw"),
    ("3dpw-occ", "mpjpe"): (79.6, "tab:3dpw"),
    ("3dpw-occ", "pa_mpjpe"): (50.7, "tab:3dpw"),
    ("advocc-40", "mpjpe"): (108.4, "tab:3dpw"),
    ("advocc-40", "pa_mpjpe"): (59.8, "tab:3dpw"),
    ("advocc-80", "mpjpe"): (153.6, "tab:3dpw"),
    ("advocc-80", "pa_mpjpe"): (78.7, "tab:3dpw"),
}
"""(protocol, metric) -> mm and the label of the paper's table. The paper names no joint set or hypothesis count."""

PAPER_ACTIONS: dict[str, tuple[float, ...]] = {
    "h36m-p1": (41.9, 47.8, 45.0, 49.0, 51.5, 62.2, 45.7, 45.6, 57.6, 67.1, 50.1, 45.3, 51.4, 37.3, 40.9),
    "h36m-p2": (34.5, 38.4, 35.1, 40.8, 39.8, 47.0, 34.9, 34.7, 47.1, 52.3, 40.4, 36.1, 42.9, 30.0, 33.4),
}
"""Protocol -> the Di2Pose row of tab:h36m and tab:app_h36m, in the order of
data.human36m.ACTIONS."""

DATASETS = {"h36m": "h36m", "3dpw": "3dpw", "advocc": "3dpw"}
"""Start of a protocol's id -> start of the name of the dataset on which the paper's number was measured."""


def paper_number(protocol: str, metric: str, dataset: str) -> tuple[float, str] | None:
    """The paper's number where there is one for this protocol, metric and dataset."""
    if not dataset.lower().startswith(DATASETS.get(protocol.partition("-")[0], "\0")):
        return None
    return PAPER.get((protocol, metric))
