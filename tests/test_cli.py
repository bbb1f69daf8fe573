import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import di2pose
from di2pose.cli import COMMANDS, main


def test_usage_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert main(["nonsense"]) == 2
    assert "no command 'nonsense'" in capsys.readouterr().err


def test_the_help_of_a_group_lists_its_commands_and_no_others(capsys):
    for group in ("data", "people", "train"):
        for words in ([group, "--help"], [group, "-h"], [group]):
            assert main(words) == 0
            text = capsys.readouterr().out
            assert all((name in text) == name.startswith(f"{group} ") for name in COMMANDS if " " in name)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--help"])
    assert ended.value.code == 0
    assert "--protocol" in capsys.readouterr().out


def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "slow_to_load.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "slow", ("slow_to_load:run", "never gets there"))
    assert main(["slow"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_photo_imports_no_more_than_it_uses(tmp_path):
    Image.new("RGB", (128, 128), (90, 120, 160)).save(tmp_path / "a.png")
    words = ["predict", "a.png", "--boxes", "15,5,110,125", "--steps", "2", "--no-second-look"]
    heavy = ("scipy", "av", "pandas", "pyarrow", "ray", "transformers", "numba", "tabulate", "di2pose.video")
    code = f"import sys; from di2pose.cli import main; print(main({words}), [m for m in {heavy} if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(Path(di2pose.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"
