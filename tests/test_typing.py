"""Types of the public calls, as a type checker sees them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SNIPPET = """
from pathlib import Path
from di2pose import Di2Pose, estimate_video

model = Di2Pose.from_pretrained()
reveal_type(model("a.jpg"))
reveal_type(model(Path("a.jpg"), hypotheses=4))
reveal_type(model(["a.jpg", "b.jpg"], seed=1))
reveal_type(model("a.jpg").people[0]["left_knee"].xyz_mm)
reveal_type(estimate_video(model, "walk.mp4"))
model("a.jpg", hypothesis=4)
"""


def test_a_call_has_a_type_and_a_misspelt_option_is_found(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    # A process: mypy takes 650 MB. In the repository: with its settings and the cache of `make lint`.
    command = [sys.executable, "-m", "mypy", str(tmp_path / "snippet.py")]
    output = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    types = [line.split('"')[1] for line in output.splitlines() if "Revealed type" in line]
    one, several = "di2pose.result.Result", "list[di2pose.result.Result]"
    assert [kind.removeprefix("builtins.") for kind in types[:3]] == [one, one, several], output
    assert "ndarray" in types[3]
    assert types[4] == "di2pose.result.Motion"
    assert 'Unexpected keyword argument "hypothesis"' in output or "No overload variant" in output
