"""`di2pose predict` on photos, good and bad: what is written, what is said, how it ends."""

import json
import os

import numpy as np
import pytest
from commands.running import written
from PIL import Image
from PIL.ExifTags import IFD, Base

from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.image import read
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Result

BOX, SMALL_BOX = "60,20,440,500", "15,5,110,125"
"""Of the portrait, and of the portrait with 128x128 pixels: the detector need not run."""


@pytest.fixture
def small(portrait):
    return portrait.resize((128, 128))


def test_found_people_and_an_empty_photo_in_every_format_that_was_asked_for(run, walker, tmp_path):
    walker.save(tmp_path / "a.jpg")
    Image.new("RGB", (320, 240), (90, 120, 160)).save(tmp_path / "sky.jpg")
    formats = "json,csv,npz,trc,bvh,html,overlay"
    code, said, _, out = run(tmp_path / "a.jpg", tmp_path / "sky.jpg", format=formats)
    assert code == 0
    both = [f"{name}.{ending}" for name in ("a", "sky") for ending in ("csv", "html", "json", "npz", "overlay.jpg")]
    assert written(out) == sorted([*both, "a.bvh", "a.trc"])
    result = Result.load(out / "a.json")
    assert (len(result.people), result.hypotheses, result.steps, result.size) == (1, 2, 2, walker.size)
    assert result.image == str(tmp_path / "a.jpg")
    assert Result.load(out / "sky.json").people == ()
    lines = said.splitlines()
    assert lines[0].startswith("a.jpg    1 person, ")
    assert "joints hidden · " in lines[0]
    assert lines[0].endswith(f" · {result.floor_note} · wrote a.json .csv .npz .trc .bvh .html .overlay.jpg")
    assert lines[1].endswith("nobody found · no trc, bvh without people · wrote sky.json .csv .npz .html .overlay.jpg")
    assert lines[2] == "2 photos done, 1 person"
    assert "nobody found in 1 photo. If there is somebody: say where they are with --boxes X0,Y0,X1,Y1 (pixels)" in said
    assert "a lower --min-score or another --detector" in said


def test_a_folder_of_everything_does_what_can_be_done(run, small, tmp_path):
    """Grey, 16 bits, a TIFF of two pages; and a dot, a text, half a JPEG, notes, and a file that is not there."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    small.convert("L").save(folder / "grey.png")
    Image.fromarray(np.asarray(small.convert("L")).astype(np.uint16) * 257).save(folder / "deep.tif")
    small.save(folder / "pages.tif", save_all=True, append_images=[small.rotate(180)])
    Image.new("RGB", (1, 1)).save(folder / "dot.png")
    (folder / "text.jpg").write_text("this is no picture")
    small.save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:1500])
    (folder / "notes.txt").write_text("mine")
    good = ["grey.png", "deep.tif", "pages.tif"]
    boxes = {name: [list(map(int, SMALL_BOX.split(",")))] for name in [*good, "misspelt.png"]}
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    code, said, problems, out = run(folder, tmp_path / "gone.jpg", boxes=tmp_path / "boxes.json")
    assert code == 1
    assert written(out) == ["deep.json", "grey.json", "pages.json"]
    results = {path.stem: Result.load(path) for path in out.iterdir()}
    assert {len(result.people) for result in results.values()} == {1}
    eight, sixteen = (results[name].people[0].joints_mm for name in ("grey", "deep"))
    assert np.array_equal(eight, sixteen)  # the same pixels in 16 bits
    assert "first of 2 frames" in next(line for line in said.splitlines() if line.startswith("pages.tif"))
    assert "3 photos done, 3 people" in said
    assert "ignored, neither photo nor video: notes.txt" in said
    assert "boxes.json names what is not among the photos: misspelt.png" in said
    assert "gone.jpg, cut.jpg, dot.png, text.jpg" in said.split("failed, wholly or in part: ")[1]
    words = {"cut.jpg": "is damaged", "dot.png": "1x1 pixels", "text.jpg": "not an image", "gone.jpg": "no such file"}
    for name, problem in words.items():
        assert problem in next(line for line in problems.splitlines() if name in line)


def test_photos_are_predicted_in_order_and_written_two_by_two(run, small, tmp_path, monkeypatch):
    names = [f"{k}.png" for k in range(3)]
    for name in names:
        small.save(tmp_path / name)
    calls, real = [], Di2Pose.__call__

    def call(self, images, **options):
        calls.append((len(written(tmp_path / "out")), options["seed"], options["min_score"], options["field_of_view"]))
        return real(self, images, **options)

    monkeypatch.setattr(Di2Pose, "__call__", call)
    code, said, _, out = run(tmp_path, boxes=f"{SMALL_BOX}; 20,5,110,120", min_score=0.0, fov=50.0, seed=7)
    assert code == 0
    assert calls == [(0, 7, 0.0, 50.0), (2, 7, 0.0, 50.0)]
    assert [line.split()[0] for line in said.splitlines()[:3]] == names
    assert "names what is not" not in said
    assert len({(out / f"{k}.json").read_text().replace(f"{k}.png", "") for k in range(3)}) == 1
    boxes = {one.box for one in Result.load(out / "0.json").people}
    assert boxes == {(15, 5, 110, 125), (20, 5, 110, 120)}


def test_odd_names_give_files_and_one_line_each(run, small, tmp_path):
    """Line breaks, tabs, quotes, bytes that are no UTF-8, and as many letters as a file system takes."""
    folder = tmp_path / "odd"
    folder.mkdir()
    names = [b"two\nlines.png", b"\xff\xfe.png", "\"quoted'\t人 %s {x}.png".encode(), b"x" * 240 + b".png"]
    for name in names:
        small.save(folder / "plain.png")
        (folder / "plain.png").rename(folder / os.fsdecode(name))
    code, said, problems, out = run(folder, boxes=SMALL_BOX, format="json,csv,npz,parquet,trc,html")
    assert (code, problems) == (0, "")
    assert len(said.splitlines()) == len(names) + 2
    assert len(written(out)) == 6 * len(names)
    assert "two\\nlines.png" in said
    for name in names:
        path = out / os.fsdecode(name[:-4] + b".json")
        assert Result.load(path).image == str(folder / os.fsdecode(name))


def test_the_command_line_writes_to_a_folder_that_it_names(run, model_folder, small, tmp_path, monkeypatch, capsys):
    small.save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    words = ["predict", "a.png", "--model", str(model_folder), "--steps", "2", "--hypotheses", "2", "--no-second-look"]
    assert main([*words, "--boxes", SMALL_BOX, "--format", "json"]) == 0
    assert written(tmp_path / "di2pose-out") == ["a.json"]
    assert "written to di2pose-out: 1 json" in capsys.readouterr().out
    assert main(["predict", "a\nb.jpg"]) == 2
    assert capsys.readouterr().err == "error: a\\nb.jpg: no such file or folder\n"


def test_a_huge_jpeg_is_done_small_and_written_in_its_own_pixels(run, portrait, tmp_path, monkeypatch):
    """With the portrait in a corner: the box is given, and comes back, in pixels of the file."""
    monkeypatch.setattr(read, "SHRINK_FROM", 0.6)
    huge = Image.new("RGB", (1000, 800), (90, 120, 160))
    huge.paste(portrait, (480, 280))
    huge.save(tmp_path / "huge.jpg")
    box = (480 + 60, 280 + 20, 480 + 440, 280 + 500)
    code, said, _, out = run(tmp_path / "huge.jpg", boxes=",".join(map(str, box)), format="json,overlay")
    assert code == 0
    assert "1000x800 shrunk to 500x400" in said
    result = Result.load(out / "huge.json")
    assert result.size == (1000, 800)
    person = result.people[0]
    assert person.box == pytest.approx(box)
    projected = result.camera.project(person.joints_mm + person.root_mm)
    np.testing.assert_allclose(projected, person.joints_2d, atol=0.5)
    with Image.open(out / "huge.overlay.jpg") as overlay:
        assert overlay.size == (500, 400)
    huge.save(tmp_path / "huge.png")
    code, said, problems, _ = run(tmp_path / "huge.png", max_megapixels=0.7)
    assert code == 2  # only failures
    assert "nothing done" in said
    assert "megapixels, 0.7 are allowed" in problems


def test_wrong_usage_is_refused_before_any_work(run, small, tmp_path):
    small.save(tmp_path / "a.png")
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
        (["a.png"], {"workers": -1}, "--workers is a number of processes"),
        (["a.png"], {"ray_address": "10.0.0.1:6379"}, "--ray-address is of --engine ray"),
        (["a.png", "0"], {"out": tmp_path / "new", "workers": 2}, "a camera is recorded by one process"),
        (["a.png", "0"], {"out": tmp_path / "new", "engine": "ray"}, "a camera is recorded by one process"),
    ):
        with pytest.raises(InputError, match=message):
            run(*(word if word == "0" else tmp_path / word for word in words), **options)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_full_disk_keeps_what_fits_and_gives_up(run, portrait, tmp_path, small_disk):
    names = ["a.png", "b.png", "c.png"]
    for name in names:
        portrait.save(tmp_path / name)
    files = [tmp_path / name for name in names]
    code, said, problems, out = run(*files, out=small_disk, boxes=BOX, format="json,overlay")
    assert code == 1
    assert written(out) == ["a.json"]  # whole, and no half of an overlay
    assert len(Result.load(out / "a.json").people) == 1
    assert "No space left on device; make room" in problems
    assert "given up: the disk is full" in said
    assert "b.png" not in said.split("failed")[0]


def test_the_focal_length_of_a_phone_a_calibrated_camera_and_a_height_are_used(run, small, tmp_path):
    tags = Image.Exif()
    tags.get_ifd(IFD.Exif)[Base.FocalLengthIn35mmFilm] = 26
    small.crop((0, 0, 128, 96)).save(tmp_path / "a.jpg", exif=tags)
    code, said, _, out = run(tmp_path / "a.jpg", boxes="15,5,110,90")
    assert (code, "EXIF focal length (26 mm equivalent)" in said) == (0, True)
    result = Result.load(out / "a.json")
    assert result.camera.focal[0] == pytest.approx(26 / 43.27 * 160, rel=1e-3)
    assert result.camera_source == "EXIF focal length (26 mm equivalent)"

    small.save(tmp_path / "b.png")
    options = {"boxes": SMALL_BOX, "camera": tmp_path / "k.json"}
    (tmp_path / "k.json").write_text('{"K": [[350, 0, 128], [0, 350, 125], [0, 0, 1]], "size": [256, 256]}')
    run(tmp_path / "b.png", height=1.7, **options)
    result = Result.load(out / "b.json")
    assert (result.camera.focal, result.camera.centre) == ((175.0, 175.0), (64.0, 62.5))
    run(tmp_path / "b.png", height=0.85, **options)
    np.testing.assert_allclose(
        2 * Result.load(out / "b.json").people[0].joints_mm, result.people[0].joints_mm, atol=0.01
    )
    (tmp_path / "k.json").write_text('{"K": [[350, 0, 128], [0, 350, 125], [0, 0, 1]], "size": [256, 192]}')
    code, _, problems, _ = run(tmp_path / "b.png", **options)
    assert code == 2
    assert "calibrated at 256x192 and the picture has 128x128" in problems


def test_faces_are_hidden_and_the_rest_is_not(run, portrait, tmp_path):
    portrait.save(tmp_path / "a.png")
    _, _, _, out = run(tmp_path / "a.png", boxes=BOX, format="overlay", blur_faces=True)
    _, _, _, plain = run(tmp_path / "a.png", boxes=BOX, format="overlay", out=tmp_path / "plain")
    shown, original = (
        np.asarray(Image.open(folder / "a.overlay.jpg").convert("L")).astype(float) for folder in (out, plain)
    )
    face, badge = (slice(90, 160), slice(195, 255)), (slice(440, 500), slice(300, 360))
    assert np.abs(shown - original)[face].mean() > 8  # the skeleton's lines are in both
    assert np.median(np.abs(shown[badge] - original[badge])) < 6


def test_keypoints_of_another_program_by_the_photos_name(run, small, tmp_path):
    """OpenPose's file of the one photo; another photo that it does not name shows nobody."""
    for name in ("a.png", "b.png"):
        small.save(tmp_path / name)
    marks = np.random.default_rng(0).uniform((15, 5, 0.5), (110, 125, 1.0), (17, 3))
    people = [{"pose_keypoints_2d": marks.ravel().tolist()}]
    given = tmp_path / "a_keypoints.json"
    given.write_text(json.dumps({"version": 1.3, "people": people}))
    code, _, _, out = run(tmp_path / "a.png", tmp_path / "b.png", keypoints=given)
    assert code == 0
    assert [len(Result.load(out / f"{name}.json").people) for name in ("a", "b")] == [1, 0]
    with pytest.raises(InputError, match=r"has nobody in b.png: it is about a"):
        run(tmp_path / "b.png", keypoints=given)
    with pytest.raises(InputError, match="not both"):
        run(tmp_path / "a.png", keypoints=given, boxes="1,2,3,4")
