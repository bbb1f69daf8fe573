"""`di2pose predict --engine ray` on a real cluster of two workers on this machine."""

import pytest
from commands.running import written

pytest.importorskip("ray", reason="needs the extra ray")
BOX = "15,5,110,125"


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_the_files_are_those_of_one_process_and_a_stopped_run_goes_on(run, portrait, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    for k in range(3):
        portrait.crop((k, k, 512, 512)).resize((128, 128)).save(tmp_path / "photos" / f"{k}.png")
    (tmp_path / "photos" / "broken.jpg").write_text("this is no picture")
    monkeypatch.chdir(tmp_path)
    options = {"boxes": BOX, "format": "json,csv,trc"}
    run("photos", out=tmp_path / "one", **options)
    ray = {"out": tmp_path / "ray", "engine": "ray", "workers": 2, **options}
    (tmp_path / "ray").mkdir()
    for ending in ("json", "csv", "trc"):
        (tmp_path / "ray" / f"0.{ending}").write_text("of an earlier run")
    (tmp_path / "ray" / "1.json").write_text("of a run that was killed behind it")
    code, said, problems, out = run("photos", **ray)
    assert code == 1, problems
    assert "broken.jpg  failed: " in problems
    assert "2 photos done, 2 people\n1 done earlier" in said
    assert written(out) == written(tmp_path / "one")
    for name in written(out):
        assert name[0] == "0" or (out / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name
    code, said, _, _ = run("photos/1.png", **ray)
    assert (code, said) == (0, "nothing done, 0 people\n1 done earlier\n")
