"""Who is in the frame: not who is small in the picture and far behind."""

import json
from dataclasses import replace

import numpy as np
import pytest
from output.people import person, result

from di2pose.output.framing import main_people
from di2pose.output.viewer import page_data


def somebody(width, height, away_mm):
    return replace(person(), box=(100.0, 50.0, 100.0 + width, 50.0 + height), root_mm=np.array([0.0, 0.0, away_mm]))


@pytest.mark.parametrize(
    ("other", "main"),
    [
        (somebody(54, 72, 12000.0), False),  # a spectator
        (somebody(54, 72, 4500.0), True),  # mostly hidden, but near
        (somebody(200, 300, 12000.0), True),  # far by a guess, but large
        (somebody(300, 60, 5000.0), True),  # lying
        (somebody(150, 100, 6500.0), True),
    ],
)
def test_small_and_far_people_are_not_main(other, main):
    player = somebody(250, 400, 3000.0)
    assert main_people([other, player]) == [main, True]
    assert main_people([player, other]) == [True, main]


def test_alone_everybody_is_main():
    assert main_people([]) == []
    assert main_people([somebody(10, 15, 90000.0)]) == [True]


def test_files_and_pages_say_the_same():
    picture = result([somebody(54, 72, 12000.0), somebody(250, 400, 3000.0)])
    record = json.loads(picture.to_files("x.json")["x.json"])
    shown = [page_data([picture], None)["frames"], record["frames"]]
    assert [[person["main"] for person in frame["people"]] for (frame,) in shown] == [[False, True]] * 2
