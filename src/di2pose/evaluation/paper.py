"""The paper's own numbers, each with the table it stands in. They are printed beside ours, never used as targets."""

ACTION_HEADINGS = (
    "Dir", "Disc", "Eat", "Gr.", "Phon.", "Phot.", "Pose", "Pur.", "Sit", "SitD.", "Sm.", "Wait", "W.D.", "Walk", "W.T."
)  # fmt: skip

PAPER_ACTIONS: dict[str, tuple[float, ...]] = {
    "h36m-p1": (41.9, 47.8, 45.0, 49.0, 51.5, 62.2, 45.7, 45.6, 57.6, 67.1, 50.1, 45.3, 51.4, 37.3, 40.9),
    "h36m-p2": (34.5, 38.4, 35.1, 40.8, 39.8, 47.0, 34.9, 34.7, 47.1, 52.3, 40.4, 36.1, 42.9, 30.0, 33.4),
}
"""Protocol -> the Di2Pose row of tab:h36m and tab:app_h36m, in the order of data.human36m.ACTIONS."""

DATASETS = {"h36m": "h36m", "3dpw": "3dpw", "advocc": "3dpw"}
"""Start of a protocol's id -> start of the name of the dataset on which the paper's number was measured."""

METHODS = {"di2pose": "Di2Pose", "gaussian": "Gong et al. (DiffPose)", "pct": "Geng et al. (PCT)"}
"""Kind of model here -> the row of the paper's tables that it stands for."""

PAPER_METHODS: dict[tuple[str, str], dict[str, float]] = {
    ("h36m-p1", "mpjpe"): {"di2pose": 49.2, "gaussian": 49.7, "pct": 50.8},
    ("h36m-p2", "pa_mpjpe"): {"di2pose": 39.0, "gaussian": 39.2},  # the mean of the 15 printed values is 39.16
    ("3dpw-14", "mpjpe"): {"di2pose": 79.3, "gaussian": 82.7, "pct": 83.1},
    ("3dpw-14", "pa_mpjpe"): {"di2pose": 50.1, "gaussian": 53.8, "pct": 53.9},
    ("3dpw-occ", "mpjpe"): {"di2pose": 79.6, "gaussian": 82.1, "pct": 82.8},
    ("3dpw-occ", "pa_mpjpe"): {"di2pose": 50.7, "gaussian": 53.5, "pct": 53.7},
    ("advocc-40", "mpjpe"): {"di2pose": 108.4, "gaussian": 121.4, "pct": 127.2},
    ("advocc-40", "pa_mpjpe"): {"di2pose": 59.8, "gaussian": 70.9, "pct": 71.9},
    ("advocc-80", "mpjpe"): {"di2pose": 153.6, "gaussian": 189.3, "pct": 192.5},
    ("advocc-80", "pa_mpjpe"): {"di2pose": 78.7, "gaussian": 92.4, "pct": 92.1},
}
"""(protocol, metric) -> the averages of those rows in tab:h36m, tab:app_h36m and tab:3dpw; PCT's PA-MPJPE on Human3.6M
is not printed. The paper names no joint set or hypothesis count."""


def paper_number(protocol: str, metric: str, dataset: str) -> tuple[float, str] | None:
    """The paper's number where there is one for this protocol, metric and dataset, and the label of its table."""
    own = dataset.lower().startswith(DATASETS.get(protocol.partition("-")[0], "\0"))
    if not own or (protocol, metric) not in PAPER_METHODS:
        return None
    table = {"h36m-p1": "tab:h36m", "h36m-p2": "tab:app_h36m"}.get(protocol, "tab:3dpw")
    return PAPER_METHODS[protocol, metric]["di2pose"], table


DIFFPOSE_ACTIONS: dict[str, tuple[float, ...]] = {
    "h36m-p1": (42.8, 49.1, 45.2, 48.7, 52.1, 63.5, 46.3, 45.2, 58.6, 66.3, 50.4, 47.6, 52.0, 37.6, 40.2),
    "h36m-p2": (33.9, 38.2, 36.0, 39.2, 40.2, 46.5, 35.8, 34.8, 48.0, 52.5, 41.2, 36.5, 40.9, 30.3, 33.8),
}
"""The same for Gong et al.; the paper has none by action for PCT."""

Ablation = dict[str, tuple[float | None, float | None]]
"""Row -> MPJPE and PA-MPJPE as printed, on Human3.6M."""

PAPER_ABLATIONS: dict[str, Ablation] = {
    "ablation:local_num.": {"1": (14.5, 13.0), "3": (13.6, 12.5), "5": (14.1, 12.8)},
    "ablation:levels": {"[8,5,5,5]": (15.2, 15.9), "[7,5,5,5,5]": (13.6, 12.5), "[8,8,8,6,5]": (13.8, 12.7)},
    "ablation:occ_rate": {
        "0.0": (50.4, 39.3), "0.3": (50.7, 39.3), "0.6": (49.5, 39.1), "0.9": (49.2, 39.0), "1.0": (51.0, 39.5)
    },
    "ablation:steps": {
        "25 / 25": (51.7, None), "50 / 25": (51.1, None), "50 / 50": (50.6, None),
        "100 / 25": (50.3, None), "100 / 50": (49.9, None), "100 / 100": (49.2, None),
    },
    "ablation:quantization": {"local": (13.6, 12.5), "pct": (15.2, 15.9)},
    "ablation:matrices": {"0.0": (50.4, 39.3), "0.9": (49.2, 39.0), "1.0": (51.0, 39.5)},
}  # fmt: skip
"""Label of the table -> its rows, by the names of the cells of `di2pose_experiments.tables`."""
