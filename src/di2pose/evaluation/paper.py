"""The paper's own numbers, each with the table it stands in. They are printed beside ours, never used as targets."""

ACTION_HEADINGS = (
    "Dir", "Disc", "Eat", "Gr.", "Phon.", "Phot.", "Pose", "Pur.", "Sit", "SitD.", "Sm.", "Wait", "W.D.", "Walk", "W.T."
)  # fmt: skip

METHODS = {"di2pose": "Di2Pose", "gaussian": "Gong et al. (DiffPose)", "pct": "Geng et al. (PCT)"}
"""Kind of model here -> the row of the paper's tables that it stands for."""

PAPER_METHODS: dict[tuple[str, str], dict[str, float]] = {
    ("h36m-p1", "mpjpe"): {"di2pose": 49.2, "gaussian": 49.7, "pct": 50.8},
    ("h36m-p2", "pa_mpjpe"): {"di2pose": 39.0, "gaussian": 39.2},
    ("3dpw-14", "mpjpe"): {"di2pose": 79.3, "gaussian": 82.7, "pct": 83.1},
    ("3dpw-14", "pa_mpjpe"): {"di2pose": 50.1, "gaussian": 53.8, "pct": 53.9},
    ("3dpw-occ", "mpjpe"): {"di2pose": 79.6, "gaussian": 82.1, "pct": 82.8},
    ("3dpw-occ", "pa_mpjpe"): {"di2pose": 50.7, "gaussian": 53.5, "pct": 53.7},
    ("advocc-40", "mpjpe"): {"di2pose": 108.4, "gaussian": 121.4, "pct": 127.2},
    ("advocc-40", "pa_mpjpe"): {"di2pose": 59.8, "gaussian": 70.9, "pct": 71.9},
    ("advocc-80", "mpjpe"): {"di2pose": 153.6, "gaussian": 189.3, "pct": 192.5},
    ("advocc-80", "pa_mpjpe"): {"di2pose": 78.7, "gaussian": 92.4, "pct": 92.1},
}
"""(protocol, metric) -> the averages of those rows, mm. PCT's PA-MPJPE on Human3.6M is not printed; the mean of the 15
printed PA-MPJPE of Di2Pose is 39.16 (docs/paper.md, 28). The paper names no joint set or hypothesis count."""

PAPER_ACTIONS: dict[str, tuple[float, ...]] = {
    "h36m-p1": (41.9, 47.8, 45.0, 49.0, 51.5, 62.2, 45.7, 45.6, 57.6, 67.1, 50.1, 45.3, 51.4, 37.3, 40.9),
    "h36m-p2": (34.5, 38.4, 35.1, 40.8, 39.8, 47.0, 34.9, 34.7, 47.1, 52.3, 40.4, 36.1, 42.9, 30.0, 33.4),
}
"""Protocol -> the Di2Pose row of tab:h36m and tab:app_h36m, in the order of data.human36m.ACTIONS."""

SOURCES = {"h36m-p1": "tab:h36m", "h36m-p2": "tab:app_h36m"}
"""Protocol -> the label of the paper's table; all others are in tab:3dpw."""


def paper_number(protocol: str, metric: str, dataset: str) -> tuple[float, str] | None:
    """Di2Pose's number and the label of its table, where there is one for this protocol, metric and dataset."""
    found = PAPER_METHODS.get((protocol, metric))
    if found is None or not dataset.lower().startswith("h36m" if protocol in SOURCES else "3dpw"):
        return None
    return found["di2pose"], SOURCES.get(protocol, "tab:3dpw")
