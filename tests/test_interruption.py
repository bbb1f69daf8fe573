"""`interruption.check` runs in each step of a prediction."""

import pytest
from PIL import Image

from di2pose import Di2Pose
from di2pose.assets import fetch
from di2pose.interruption import check, interruptible
from di2pose.pipeline import crops

QUICK = {"hypotheses": 1, "steps": 3, "second_look": False}
PIN = {"left_wrist": (200.0, 100.0, -100.0)}


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.mark.parametrize(
    ("count", "options", "wanted"),
    [
        (2, {}, 2 + 3),  # two batches of crops, three steps
        (1, {"pin": PIN}, 1 + 3 * (1 + 16)),  # and the guidance's descent in each step
    ],
)
def test_check_is_called_in_each_step_and_each_batch_of_crops(model, count, options, wanted, monkeypatch):
    monkeypatch.setattr(crops, "BATCH", 1)
    with Image.open(fetch("astronaut")) as picture:
        photo = picture.convert("RGB")
    boxes = [(40.0 + k, 0.0, 420.0, 500.0) for k in range(count)]
    asked = []

    def stop_at(last):
        def function():
            asked.append(None)
            if len(asked) == last:
                raise Stop

        return function

    with interruptible(stop_at(None)):
        whole = model(photo, boxes=boxes, **QUICK | options)
    assert len(asked) == wanted
    if count > 1:
        return
    asked.clear()
    with interruptible(stop_at(wanted - 1)), pytest.raises(Stop):
        model(photo, boxes=boxes, **QUICK | options)
    assert len(asked) == wanted - 1
    again = model(photo, boxes=boxes, **QUICK | options)  # nothing is left of the stopped run
    assert len(asked) == wanted - 1
    assert again.to_files("x.json") == whole.to_files("x.json")


def test_the_function_is_called_inside_its_block_alone():
    calls = []
    with interruptible(lambda: calls.append("outer")):
        with interruptible(lambda: calls.append("inner")):
            check()
        check()
    check()
    assert calls == ["inner", "outer"]
