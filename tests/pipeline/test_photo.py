"""Photo in, people out, with the real detector and encoder and random weights."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from di2pose import Di2Pose, Person, Result, recipes
from di2pose.assets import fetch
from di2pose.calibration import Calibration
from di2pose.errors import InputError
from di2pose.image.crop import Roi, assumed_camera
from di2pose.image.detect import Detection, from_boxes
from di2pose.image.encoder import EncoderOutput
from di2pose.image.read import read_image
from di2pose.model import Constraints
from di2pose.noise import hypothesis_generators
from di2pose.pipeline import assemble, pipeline, second_look
from di2pose.pipeline.pipeline import SPARE
from di2pose.pipeline.request import open_picture
from di2pose.pipeline.second_look import predict_both
from di2pose.pose.bones import stature_mm
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, mirror

DRAW = {"hypotheses": 3, "steps": 2}
QUICK = {"hypotheses": 2, "steps": 2, "second_look": False}
BOX = (60.0, 20.0, 470.0, 512.0)


def small_model(**changes):
    """Features of the real shape, everything else small."""
    config = recipes.small()
    sizes = {"width": 24, "layers": 1, "heads": 2, "adapter_layers": 1, "joints": 17} | changes
    tokenizer = replace(config.tokenizer, skeleton="h36m_17", encoder_width=128, decoder_width=128)
    torch.manual_seed(0)
    return Di2Pose(replace(config, tokenizer=tokenizer, denoiser=replace(config.denoiser, **sizes))).eval()


@pytest.fixture(scope="module")
def path():
    try:
        for name in ("blazepose-heavy", "blazepose-detector"):
            fetch(name)
        return fetch("astronaut")
    except InputError as error:
        pytest.skip(f"the networks or the photo cannot be fetched here: {error}")


@pytest.fixture(scope="module")
def astronaut(path):
    return Image.open(path).convert("RGB")


@pytest.fixture(scope="module")
def model(path):
    return small_model()


@pytest.fixture(scope="module")
def result(model, path):
    return model(path, **DRAW)


def same(a, b, within_mm=0.0):
    assert len(a.people) == len(b.people) > 0
    for one, other in zip(a.people, b.people, strict=True):
        np.testing.assert_allclose(one.samples_mm, other.samples_mm, atol=within_mm)
        np.testing.assert_allclose(one.root_mm, other.root_mm, atol=max(within_mm, 1e-6), rtol=1e-3)


def test_a_photo_gives_a_result_with_people(result, path):
    assert isinstance(result, Result)
    assert (result.image, result.size, result.picture) == (str(path), (512, 512), None)
    assert (result.hypotheses, result.steps, result.seed, result.model) == (3, 2, 0, "small")
    assert result.camera_source.startswith("assumed")
    (person,) = result.people
    assert isinstance(person, Person)
    assert person.samples_mm.shape == (3, 17, 3)
    np.testing.assert_allclose(person.mean_mm, person.samples_mm.mean(0))
    assert (person.joints_mm[0] == 0).all()
    assert person.score > 0.5
    np.testing.assert_allclose(result.camera.project(person.joints_mm + person.root_mm), person.joints_2d, atol=1e-6)
    assert (person.joints_mm[:, 2] + person.root_mm[2]).min() > 0


def test_the_seed_decides_and_more_hypotheses_begin_with_the_fewer(model, path, result):
    same(model(str(path), **DRAW), result)
    other = model(path, seed=1, **DRAW)
    assert np.abs(other.people[0].samples_mm - result.people[0].samples_mm).max() > 1
    more = model(path, hypotheses=5, steps=2)
    np.testing.assert_array_equal(more.people[0].tokens[:3], result.people[0].tokens)


def test_a_batch_of_photos_is_the_single_runs(model, path, astronaut, result):
    pictures = [astronaut.resize((400, 420)), np.asarray(astronaut)[:, 30:], np.full((64, 80, 3), 90, np.uint8), path]
    boxes = [[(10.0, 10.0, 390.0, 400.0)], [BOX, (100.0, 0.0, 300.0, 500.0)], [], None]
    together = model(pictures, boxes=boxes, **DRAW)
    assert [len(one.people) for one in together] == [1, 2, 0, 1]
    same(model(pictures[1], boxes=boxes[1], **DRAW), together[1], within_mm=1)
    same(result, together[3], within_mm=1)
    first, second = together[1].people
    assert np.abs(first.samples_mm - second.samples_mm).max() > 1


def test_a_picture_without_people(model):
    grey = np.full((300, 200, 3), 90, np.uint8)
    assert model(grey, **DRAW).people == ()
    assert model(grey, boxes=[], **DRAW).people == ()
    assert [one.people for one in model([grey, grey], **DRAW)] == [(), ()]
    assert model([]) == []


@dataclass
class Pointer:
    """A detector with one answer."""

    box: tuple[float, float, float, float]
    asked: int = 0

    def detect(self, image, max_people=8):
        self.asked = max_people
        x0, y0, x1, y1 = self.box
        return [Detection(self.box, 0.9, Roi(((x0 + x1) / 2, (y0 + y1) / 2), 1.25 * max(x1 - x0, y1 - y0)))]


def test_a_detection_without_a_person_is_dropped_unless_the_user_gave_the_box(model, astronaut):
    wall = (400.0, 0.0, 511.0, 111.0)
    pointer = Pointer(wall)
    assert model(astronaut, detector=pointer, max_people=3, **QUICK).people == ()
    assert pointer.asked == 3 + SPARE
    (person,) = model(astronaut, boxes=[wall], **QUICK).people
    assert (person.box, person.score) == (wall, 1.0)
    (person,) = model(astronaut, detector=Pointer(BOX), **QUICK).people
    assert (person.box, person.score) == (BOX, 0.9)


def test_a_second_look_keeps_the_most_certain_of_four_crops(model, astronaut):
    turned = Roi((265.0, 266.0), 615.0, 1.0)
    crops = [model.crop(astronaut, Detection(BOX, 1.0, roi), assumed_camera((512, 512))) for roi in (turned, turned)]
    first = model.encode(crops)
    upright = second_look.upright_crops(first.crops)
    assert [(row, crop.region.angle) for row, crop in upright.items()] == [(0, 0.0), (1, 0.0)]
    taken = [first, model.encode(list(upright.values()))]
    taken += [model.encode(list(second_look.moved_crops(seen, model.encoder).values())) for seen in taken]
    certainty = model.numpy_model.certainty
    sure = max(certainty(seen.output.features)[0] for seen in taken if seen.crops)
    second = second_look.with_second_looks(first, model.encoder, model.numpy_model, [1])
    assert second.crops[0] is first.crops[0]
    assert certainty(second.output.features)[1] == pytest.approx(sure)
    assert second.crops[1].detection.box == BOX


def test_every_other_pair_of_hypotheses_comes_from_the_mirror(model, astronaut):
    both = model.encode([model.crop(astronaut, from_boxes([BOX])[0], assumed_camera((512, 512)))], flip_test=True)
    flipped = ImageOps.mirror(astronaut)
    box = (512 - BOX[2], BOX[1], 512 - BOX[0], BOX[3])
    other = model.encode([model.crop(flipped, from_boxes([box])[0], assumed_camera((512, 512)))]).output.features
    assert np.abs(both.flipped.features - other).max() < 0.05 * np.abs(other).max()
    sides = (both.output.features, both.flipped.features)
    found = predict_both(model.numpy_model, *sides, 6, 2, hypothesis_generators(0, [0], 6))
    for side, mine in zip(sides, ([0, 1, 4, 5], [2, 3]), strict=True):
        noise = hypothesis_generators(0, [0], 6)
        alone = model.numpy_model.predict(side, len(mine), 2, [noise[h] for h in mine]).joints_mm
        mirrored = side is both.flipped.features
        np.testing.assert_allclose(found.joints_mm[:, mine], mirror(alone, H36M_17) if mirrored else alone, atol=1e-3)
    again = model.model.tokenizer.decode(torch.from_numpy(found.tokens[0])).numpy()
    np.testing.assert_allclose(again[[0, 1, 4, 5]], found.joints_mm[0, [0, 1, 4, 5]], atol=1e-3)
    kept = Constraints(kept=(np.zeros((1, 48), np.int64), np.ones((1, 48), bool)))
    stay = predict_both(model.numpy_model, *sides, 6, 2, hypothesis_generators(0, [0], 6), kept)
    assert (stay.tokens == 0).all()
    few = predict_both(model.numpy_model, *sides, 2, 2, hypothesis_generators(0, [0], 2))
    np.testing.assert_allclose(few.visibility, found.visibility, atol=1e-5)


def test_a_pin_is_mirrored_with_the_pose(model, astronaut):
    seen = model.encode([model.crop(astronaut, from_boxes([BOX])[0], assumed_camera((512, 512)))], flip_test=True)
    wrist = H36M_17.index("left_wrist")
    pin = np.zeros((1, 17, 3), np.float32)
    pin[0, wrist] = 400.0, -200.0, -150.0
    known = np.arange(17)[None] == wrist
    apart = []
    for pins in (None, (pin, known)):
        noise = hypothesis_generators(0, [0], 8)
        sides = seen.output.features, seen.flipped.features
        poses = predict_both(model.numpy_model, *sides, 8, 4, noise, Constraints(pins)).joints_mm
        apart.append(np.linalg.norm(poses[0, :, wrist] - pin[0, wrist], axis=-1))
    mirrored = np.arange(8) % 4 >= 2  # every other pair is of the mirror image
    assert apart[1][mirrored].mean() < 0.9 * apart[0][mirrored].mean()


def test_the_second_look_can_be_left_out(model, astronaut, monkeypatch):
    monkeypatch.setattr(pipeline, "with_second_looks", lambda *_: pytest.fail("a second look was taken"))
    assert model(astronaut, boxes=[BOX], second_look=False, **DRAW).people
    with pytest.raises(pytest.fail.Exception):
        model(astronaut, boxes=[BOX], **DRAW)


def test_a_region_far_from_the_first_is_not_tried(model, astronaut):
    seen = model.encode([model.crop(astronaut, from_boxes([BOX])[0], assumed_camera((512, 512)))])
    assert list(second_look.moved_crops(seen, model.encoder)) == [0]
    moved = replace(seen.output, landmarks_2d=seen.output.landmarks_2d + np.array([150.0, 0.0]))
    assert second_look.moved_crops(replace(seen, output=moved), model.encoder) == {}


def test_a_given_camera_or_field_of_view_is_used(model, astronaut):
    camera = Camera((700.0, 700.0), (250.0, 260.0), (512, 512), distortion=(0.1, 0.0, 0.0, 0.0))
    assert model(astronaut, boxes=[BOX], camera=camera, **QUICK).camera == camera
    wide, narrow = (model(astronaut, boxes=[BOX], field_of_view=fov, **QUICK) for fov in (90.0, 20.0))
    assert wide.camera == assumed_camera((512, 512), 90.0)
    assert narrow.people[0].root_mm[2] > 2 * wide.people[0].root_mm[2]


def test_a_stated_height_scales_everything_and_moves_no_pixel(model, path):
    (free,), (tall,) = (model(path, boxes=[BOX], height_m=h, field_of_view=60.0, **QUICK).people for h in (None, 1.9))
    factor = 1900 / stature_mm(free.joints_mm)
    assert stature_mm(tall.joints_mm) == pytest.approx(1900)
    np.testing.assert_allclose(tall.joints_mm, free.joints_mm * factor)
    np.testing.assert_allclose(tall.root_mm, free.root_mm * factor)
    np.testing.assert_allclose(tall.r90_mm, free.r90_mm * factor)
    np.testing.assert_allclose(tall.covariance_mm2, free.covariance_mm2 * factor**2)
    np.testing.assert_allclose(tall.joints_2d, free.joints_2d)
    (again,) = model(path, boxes=[BOX], height_m={0: 1.9, 1: 1.2}, field_of_view=60.0, **QUICK).people
    for field in ("joints_mm", "samples_mm", "root_mm", "root_std_mm", "covariance_mm2", "r90_mm"):
        np.testing.assert_allclose(getattr(again, field), getattr(tall, field), rtol=1e-5)


def test_an_occluded_region_is_not_encoded_and_its_joints_are_occluded(model, astronaut):
    region = (100.0, 150.0, 400.0, 420.0)
    changed = astronaut.copy()
    changed.paste((255, 0, 0), tuple(int(v) for v in region))
    one, other = (model(image, boxes=[BOX], occluded=[region], **QUICK) for image in (astronaut, changed))
    same(one, other)
    assert one.picture.tobytes() == astronaut.tobytes()
    crops = [model.crop(astronaut, from_boxes([BOX])[0], assumed_camera(astronaut.size), h) for h in ((), (region,))]
    plain, hidden = model.encode(crops).output.features
    assert np.abs(plain - hidden).max() > 0.1
    (person,) = one.people
    x, y = person.joints_2d.T
    inside = (x > 100) & (x < 400) & (y > 150) & (y < 420)
    assert inside.any()
    assert (person.state[inside] == "occluded").all()


def test_geometry_decides_which_joints_are_out_of_frame(model, astronaut):
    half = astronaut.crop((0, 0, 512, 256))
    seen = model.encode([model.crop(half, from_boxes([BOX])[0], assumed_camera(half.size))])
    certain = np.zeros((1, 17, 4))
    certain[..., 3] = 1  # all out of the frame
    estimate = replace(model.estimate(seen, 2, 2, torch.Generator().manual_seed(0)), visibility=certain)
    (person,) = model.place(seen, estimate)
    slack = 0.05 * seen.crops[0].region.side
    inside = (np.abs(person.joints_2d - (256, 128)) < (256 - slack, 128 - slack)).all(-1)
    assert inside.any()
    assert not inside.all()
    assert (person.state[inside] == "occluded").all()
    assert (person.state[~inside] == "out_of_frame").all()


def test_the_calibration_of_the_model_is_applied(model, path, result):
    sure = replace(
        Calibration.neutral(), floor_mm2=((4.0,) * 17, (4.0,) * 17), gain=((0.0,) * 17, (0.0,) * 17), seen_threshold=0.0
    )
    model.calibration = replace(sure, hypotheses=3)
    try:
        (person,) = model(path, **DRAW).people
    finally:
        model.calibration = None
    np.testing.assert_allclose(person.std_mm, np.sqrt(4 / 3))
    assert (person.state != "visible").mean() < (result.people[0].state != "visible").mean() + 0.3
    assert not np.allclose(result.people[0].std_mm, person.std_mm)


def test_without_a_visibility_head_the_landmarks_visibility_is_used(path):
    plain = small_model(adapter_layers=0, hint_channels=0, feature_tokens=0, observer_tokens=0)
    (person,) = plain(path, boxes=[BOX], second_look=False, **DRAW).people
    shown = np.linspace(0, 1, 33)[None]
    output = EncoderOutput(np.zeros((1, 1, 1), np.float32), landmark_visibility=shown, skeleton=BLAZEPOSE_33)
    visibility = assemble.visibility_by_landmarks(output, H36M_17)
    np.testing.assert_allclose(visibility.sum(-1), 1)
    assert visibility[0, H36M_17.index("left_knee"), 0] == pytest.approx(BLAZEPOSE_33.index("left_knee") / 32)
    assert Calibration.neutral().state(visibility)[0, H36M_17.index("left_knee")] == "visible"
    assert person.samples_mm.shape == (3, 17, 3)


def test_encoder_and_detector_are_no_part_of_the_model(model, path, result, tmp_path):
    assert not any("encoder.graph" in key or "detector" in key for key in model.model.state_dict())
    again = Di2Pose.from_pretrained(model.save(tmp_path / "model"))
    assert again._encoders == again._detectors == {}
    same(again(path, **DRAW), result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"boxes": BOX}, r"a list of \(x0, y0, x1, y1\)"),
        ({"boxes": [(5.0, 5.0, 2.0, 9.0)]}, "x0 < x1"),
        ({"boxes": [(600.0, 0.0, 700.0, 100.0)]}, "outside of the picture of 512x512"),
        ({"occluded": [(1.0, 2.0, 3.0)]}, r"a list of \(x0, y0, x1, y1\)"),
        ({"camera": Camera((500.0, 500.0), (320.0, 240.0), (640, 480))}, "640x480 pixels, this one has 512x512"),
        ({"camera": assumed_camera((512, 512)), "field_of_view": 50.0}, "not both"),
        ({"detector": "yolo"}, "'auto', 'blazepose'"),
    ],
)
def test_wrong_arguments_are_named(model, astronaut, arguments, message, as_user):
    with pytest.raises(InputError, match=message):
        model(astronaut, **(DRAW | arguments))


def test_an_image_object_is_read_like_its_file(astronaut, tmp_path):
    grey16 = Image.fromarray(np.asarray(astronaut.convert("L")).astype(np.uint16) * 257)
    clear = astronaut.copy()
    clear.putalpha(0)
    turned = astronaut.crop((0, 0, 200, 100))
    turned.getexif()[0x0112] = 6
    for name, image in {"grey.png": grey16, "clear.png": clear, "turned.png": turned}.items():
        image.save(tmp_path / name, exif=image.getexif())
        size = image.size
        assert np.array_equal(np.asarray(open_picture(image)), np.asarray(read_image(tmp_path / name)))
        assert image.size == size  # the user's object does not change


def test_wrong_pictures_are_named(model, tmp_path, as_user):
    (tmp_path / "text.jpg").write_text("no picture")
    for picture, message in (
        (tmp_path / "nothing.jpg", "no image file"),
        (tmp_path / "text.jpg", "not an image"),
        (np.zeros((64, 64, 3)), "got float64 of shape"),
        (np.zeros((2, 64, 64, 3), np.uint8), "several pictures come as a list"),
        (Image.new("RGB", (1, 1)), "at least 16 pixels a side"),
        (3, "got int"),
    ):
        with pytest.raises(InputError, match=message):
            model(picture)
    with pytest.raises(InputError, match=r"2 images need as many lists of boxes, got 1"):
        model([Image.new("RGB", (64, 64))] * 2, boxes=[[BOX]])


def test_an_unknown_model_is_named(tmp_path):
    with pytest.raises(InputError, match="no model 'enormous'"):
        Di2Pose.from_pretrained("enormous")
    with pytest.raises(InputError, match="is not a checkpoint"):
        Di2Pose.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (None, "cannot look at pictures: its features come from 'none'"),
        ("blazepose-lite", "image tokens of width 32; blazepose-lite gives 117 of width 200"),
    ],
)
def test_a_model_without_a_fitting_encoder_is_an_error(encoder, message):
    with pytest.raises(InputError, match=message):
        Di2Pose(recipes.tiny(), encoder)(np.zeros((64, 64, 3), np.uint8), boxes=[(1.0, 1.0, 60.0, 60.0)])
