"""`di2pose predict` on photos, good and bad: what is written, what is said, how it ends."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from commands.running import written
from PIL import Image
from PIL.ExifTags import IFD, Base

from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Result

BOX = [[60, 20, 440, 500]]


@pytest.fixture
def boxes(tmp_path):
    """Boxes for the portrait under any name: the detector need not run."""

    def write(*names):
        (tmp_path / "boxes.json").write_text(json.dumps({name: BOX for name in names}))
        return tmp_path / "boxes.json"

    return write


def test_a_photo_gives_every_format_that_was_asked_for(run, walker, tmp_path):
    walker.save(tmp_path / "walker.jpg")
    formats = "json,csv,npz,trc,bvh,html,overlay,png"
    code, said, _, out = run(tmp_path / "walker.jpg", format=formats)
    assert code == 0
    endings = ("bvh", "csv", "html", "json", "npz", "overlay.jpg", "png", "trc")
    assert written(out) == sorted(f"walker.{ending}" for ending in endings)
    result = Result.load(out / "walker.json")
    assert (len(result.people), result.hypotheses, result.steps, result.size) == (1, 2, 2, walker.size)
    assert result.image == str(tmp_path / "walker.jpg")
    line, *_ = said.splitlines()
    assert line.startswith("walker.jpg  1 person, ")
    assert line.endswith("joints hidden · wrote walker.json .csv .npz .trc .bvh .html .overlay.jpg .png")
    assert "1 photo done, 1 person" in said


def test_a_photo_with_nobody_is_a_result_without_people(run, tmp_path):
    Image.new("RGB", (320, 240), (90, 120, 160)).save(tmp_path / "sky.jpg")
    code, said, _, out = run(tmp_path / "sky.jpg", format="json,csv,html,overlay,trc,bvh")
    assert code == 0
    assert "nobody found · no trc, bvh without people · wrote sky.json .csv .html .overlay.jpg" in said
    assert "nobody found in 1 photo. If there is somebody: say where they are with --boxes X0,Y0,X1,Y1 (pixels)" in said
    assert "--min-score" in said
    assert "--detector" in said
    assert Result.load(out / "sky.json").people == ()


def test_a_folder_of_everything_does_what_can_be_done(run, portrait, tmp_path, boxes):
    """Grey, CMYK, 16 bits, palette, alpha, a moving GIF; and a dot, a text, half a JPEG and notes."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    portrait.convert("L").save(folder / "grey.png")
    portrait.convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(np.asarray(portrait.convert("L")).astype(np.uint16) * 257).save(folder / "deep.tif")
    portrait.convert("P").save(folder / "palette.png")
    portrait.convert("RGBA").save(folder / "alpha.png")
    portrait.convert("P").save(folder / "moving.gif", save_all=True, append_images=[portrait.convert("P").rotate(180)])
    Image.new("RGB", (1, 1)).save(folder / "dot.png")
    (folder / "text.jpg").write_text("this is no picture")
    portrait.save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.txt").write_text("mine")
    good = ["grey.png", "cmyk.jpg", "deep.tif", "palette.png", "alpha.png", "moving.gif"]
    code, said, problems, out = run(folder, boxes=boxes(*good))
    assert code == 1
    assert written(out) == sorted(f"{Path(name).stem}.json" for name in good)
    results = {path.stem: Result.load(path) for path in out.iterdir()}
    assert {len(result.people) for result in results.values()} == {1}
    eight, sixteen = (results[name].people[0].joints_mm for name in ("grey", "deep"))
    assert np.array_equal(eight, sixteen)  # the same pixels in 16 bits
    assert "1 person" in said
    assert "first of 2 frames" in next(line for line in said.splitlines() if line.startswith("moving.gif"))
    assert "6 photos done, 6 people" in said
    assert "ignored, neither photo nor video: notes.txt" in said
    assert "failed, wholly or in part: cut.jpg, dot.png, text.jpg" in said
    for name, words in {"cut.jpg": "is damaged", "dot.png": "1x1 pixels", "text.jpg": "not an image"}.items():
        assert words in next(line for line in problems.splitlines() if line.startswith(name))


def test_photos_are_predicted_in_order_and_written_two_by_two(run, portrait, tmp_path, monkeypatch):
    names = [f"{k}.png" for k in range(5)]
    for name in names:
        portrait.resize((128, 128)).save(tmp_path / name)
    calls, real = [], Di2Pose.__call__

    def call(self, images, **options):
        calls.append((len(written(tmp_path / "out")), options["seed"], options["min_score"], options["field_of_view"]))
        return real(self, images, **options)

    monkeypatch.setattr(Di2Pose, "__call__", call)
    code, said, _, out = run(tmp_path, boxes="15,5,110,125; 20,5,110,120", min_score=0.0, fov=50.0, seed=7)
    assert code == 0
    assert calls == [(0, 7, 0.0, 50.0), (2, 7, 0.0, 50.0), (4, 7, 0.0, 50.0)]
    assert [line.split()[0] for line in said.splitlines()[:5]] == names
    assert "names what is not" not in said
    assert len({(out / f"{k}.json").read_text().replace(f"{k}.png", "") for k in range(5)}) == 1
    boxes = {one.box for one in Result.load(out / "0.json").people}
    assert boxes == {(15, 5, 110, 125), (20, 5, 110, 120)}


def test_odd_names_give_files_and_one_line_each(run, portrait, tmp_path):
    """Line breaks, tabs, quotes, bytes that are no UTF-8, and as many letters as a file system takes."""
    folder = tmp_path / "odd"
    folder.mkdir()
    names = [b"two\nlines.png", b"\xff\xfe.png", "\"quoted'\t人 %s {x}.png".encode(), b"x" * 240 + b".png"]
    for name in names:
        portrait.resize((128, 128)).save(folder / "plain.png")
        (folder / "plain.png").rename(folder / os.fsdecode(name))
    formats = "json,csv,npz,parquet,trc,c3d,bvh,html,overlay,png"
    code, said, problems, out = run(folder, boxes="15,5,110,125", format=formats)
    assert (code, problems) == (0, "")
    assert len(said.splitlines()) == len(names) + 2
    assert len(written(out)) == 10 * len(names)
    for name in names:
        path = out / os.fsdecode(name[:-4] + b".json")
        assert Result.load(path).image == str(folder / os.fsdecode(name))
        assert "two\\nlines.png" in said


def test_without_an_output_folder_the_results_go_to_one_that_is_named(
    model_folder, portrait, tmp_path, monkeypatch, capsys
):
    portrait.save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    words = ["predict", "a.png", "--model", str(model_folder), "--steps", "2", "--hypotheses", "2"]
    assert main([*words, "--boxes", "60,20,440,500", "--format", "json"]) == 0
    assert written(tmp_path / "di2pose-out") == ["a.json"]
    assert "written to di2pose-out: 1 json" in capsys.readouterr().out
    assert main(["predict", "a\nb.jpg"]) == 2
    assert capsys.readouterr().err == "error: a\\nb.jpg: no such file or folder\n"


def test_a_huge_jpeg_is_done_small_and_written_in_its_own_pixels(run, portrait, tmp_path, boxes):
    """8,000 x 6,500 pixels with the portrait in a corner: the box is given, and comes back, in those pixels."""
    huge = Image.new("RGB", (8_000, 6_500), (90, 120, 160))
    huge.paste(portrait.resize((2048, 2048)), (5000, 4000))
    huge.save(tmp_path / "huge.jpg", quality=60)
    box = [5000 + 4 * 60, 4000 + 4 * 20, 5000 + 4 * 440, 4000 + 4 * 500]
    (tmp_path / "boxes.csv").write_text(f"file,x0,y0,x1,y1\nhuge.jpg,{','.join(map(str, box))}\n")
    code, said, _, out = run(tmp_path / "huge.jpg", boxes=tmp_path / "boxes.csv", format="json,html,overlay")
    assert code == 0
    assert "8000x6500 shrunk to 4000x3250" in said
    result = Result.load(out / "huge.json")
    assert result.size == (8_000, 6_500)
    assert result.people[0].box == pytest.approx(box)
    person = result.people[0]
    projected = result.camera.project(person.joints_mm + person.root_mm)
    np.testing.assert_allclose(projected, person.joints_2d, atol=0.5)
    with Image.open(out / "huge.overlay.jpg") as overlay:
        assert overlay.size == (4000, 3250)
    huge.convert("1").save(tmp_path / "huge.png")
    code, said, problems, _ = run(tmp_path / "huge.png", max_megapixels=50)
    assert code == 2  # only failures
    assert "nothing done" in said
    assert "52 megapixels, 50 are allowed" in problems


def test_wrong_usage_is_refused_before_any_work(run, portrait, tmp_path):
    portrait.save(tmp_path / "a.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").write_text("mine")
    (tmp_path / "k.json").write_text("[[500, 0, 256], [0, 500, 256], [0, 0, 1]]")
    for words, options, message in (
        (["empty"], {}, "no photo and no video in this folder"),
        (["gone.jpg"], {}, "no such file or folder"),
        ([], {}, "give a photo, a video"),
        (["a.png"], {"out": tmp_path / "new", "model": "nowhere"}, "no model 'nowhere'"),
        (["a.png"], {}, "the output must be a folder"),
        (["a.png"], {"out": tmp_path, "format": "png"}, "would be written over an input"),
        (["a.png"], {"out": tmp_path / "out" / "x"}, "choose a folder that you may write"),
        (["a.png"], {"format": "json,pdf"}, "--format knows .* got pdf"),
        (["a.png"], {"format": ","}, "--format needs"),
        (["a.png"], {"height": 178.0}, "did you mean 1.78"),
        (["a.png"], {"fov": 200.0}, "--fov must be from 1 to 170, got 200"),
        (["a.png"], {"hypotheses": 0}, "--hypotheses must be 1 or more"),
        (["a.png"], {"max_people": 0}, "--max-people must be"),
        (["a.png"], {"min_score": 1.5}, "--min-score must be from 0 to 1"),
        (["a.png"], {"device": "tpu"}, "--device is auto, cpu, cuda"),
        (["a.png"], {"device": "cuda:99"}, "--device cuda:99 cannot be used here"),
        (["a.png"], {"boxes": "1,2,3"}, "--boxes 1,2,3: a box is four numbers"),
        (["a.png"], {"boxes": tmp_path / "gone.json"}, "gone.json: No such file"),
        (["a.png"], {"camera": tmp_path / "k.json", "fov": 50.0}, "not both"),
    ):
        with pytest.raises(InputError, match=message):
            run(*(tmp_path / word for word in words), **options)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_missing_file_does_not_stop_the_others(run, portrait, tmp_path, boxes):
    portrait.save(tmp_path / "a.png")
    code, said, problems, out = run(tmp_path / "gone.jpg", tmp_path / "a.png", boxes=boxes("a.png", "b.png"))
    assert (code, written(out)) == (1, ["a.json"])
    assert "gone.jpg  failed: no such file or folder" in problems
    assert "names what is not among the photos: b.png" in said


def test_a_full_disk_keeps_what_fits_and_gives_up(run, portrait, tmp_path, boxes, small_disk):
    names = ["a.png", "b.png", "c.png"]
    for name in names:
        portrait.save(tmp_path / name)
    files = [tmp_path / name for name in names]
    code, said, problems, out = run(*files, out=small_disk, boxes=boxes(*names), format="json,overlay")
    assert code == 1
    assert written(out) == ["a.json"]  # whole, and no half of an overlay
    assert len(Result.load(out / "a.json").people) == 1
    assert "No space left on device; make room" in problems
    assert "given up: the disk is full" in said
    assert "b.png" not in said.split("failed")[0]


def test_the_focal_length_of_a_phone_is_used_and_printed(run, portrait, tmp_path, boxes):
    tags = Image.Exif()
    tags.get_ifd(IFD.Exif)[Base.FocalLengthIn35mmFilm] = 26
    portrait.crop((0, 0, 512, 384)).save(tmp_path / "a.jpg", exif=tags)
    code, printed, _, out = run(tmp_path / "a.jpg", boxes=boxes("a.jpg"))
    assert code == 0
    assert "EXIF focal length (26 mm equivalent)" in printed
    result = Result.load(out / "a.json")
    assert result.camera.focal[0] == pytest.approx(26 / 43.27 * 640, rel=1e-3)
    assert result.camera_source == "EXIF focal length (26 mm equivalent)"


def test_a_calibrated_camera_and_a_height_are_used(run, portrait, tmp_path, boxes):
    portrait.save(tmp_path / "a.png")
    (tmp_path / "k.json").write_text('{"K": [[1400, 0, 512], [0, 1400, 500], [0, 0, 1]], "size": [1024, 1024]}')
    code, _, _, out = run(tmp_path / "a.png", boxes=boxes("a.png"), camera=tmp_path / "k.json", height=1.7)
    assert code == 0
    result = Result.load(out / "a.json")
    assert (result.camera.focal, result.camera.centre) == ((700.0, 700.0), (256.0, 250.0))
    run(tmp_path / "a.png", boxes=boxes("a.png"), camera=tmp_path / "k.json", height=0.85, out=tmp_path / "half")
    half = Result.load(tmp_path / "half" / "a.json")
    np.testing.assert_allclose(2 * half.people[0].joints_mm, result.people[0].joints_mm, atol=0.01)
    (tmp_path / "k.json").write_text('{"K": [[1400, 0, 512], [0, 1400, 500], [0, 0, 1]], "size": [1024, 768]}')
    code, _, problems, _ = run(tmp_path / "a.png", boxes=boxes("a.png"), camera=tmp_path / "k.json")
    assert code == 2
    assert "calibrated at 1024x768 and the picture has 512x512" in problems


def test_faces_are_hidden_and_the_rest_is_not(run, portrait, tmp_path, boxes):
    portrait.save(tmp_path / "a.png")
    _, _, _, out = run(tmp_path / "a.png", boxes=boxes("a.png"), format="overlay", blur_faces=True)
    _, _, _, plain = run(tmp_path / "a.png", boxes=boxes("a.png"), format="overlay", out=tmp_path / "plain")
    shown, original = (
        np.asarray(Image.open(folder / "a.overlay.jpg").convert("L")).astype(float) for folder in (out, plain)
    )
    face, badge = (slice(90, 160), slice(195, 255)), (slice(440, 500), slice(300, 360))
    assert np.abs(shown - original)[face].mean() > 8  # the skeleton's lines are in both
    assert np.median(np.abs(shown[badge] - original[badge])) < 6


def test_keypoints_of_another_program_by_the_photos_name(run, portrait, tmp_path):
    """OpenPose's file of the one photo; another photo that it does not name shows nobody."""
    portrait.save(tmp_path / "a.png")
    portrait.save(tmp_path / "b.png")
    marks = np.random.default_rng(0).uniform((60, 20, 0.5), (440, 500, 1.0), (17, 3))
    people = [{"pose_keypoints_2d": marks.ravel().tolist()}]
    (tmp_path / "a_keypoints.json").write_text(json.dumps({"version": 1.3, "people": people}))
    given = tmp_path / "a_keypoints.json"
    code, _, _, out = run(tmp_path / "a.png", tmp_path / "b.png", keypoints=given, format="json")
    assert code == 0
    assert [len(Result.load(out / f"{name}.json").people) for name in ("a", "b")] == [1, 0]
    with pytest.raises(InputError, match=r"has nobody in b.png: it is about a"):
        run(tmp_path / "b.png", keypoints=given)
    with pytest.raises(InputError, match="not both"):
        run(tmp_path / "a.png", keypoints=given, boxes="1,2,3,4")
