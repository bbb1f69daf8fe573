"""Heads where the pose has them become blocks. What the encoder sees of faces is tested on whole runs of `predict`."""

import dataclasses

import numpy as np
from output.people import SIZE
from output.test_overlay import standing
from PIL import Image

from di2pose.output.anonymise import face_disc, pixelated
from di2pose.pose.skeleton import H36M_17


def hidden_heads(photo, *people):
    return pixelated(photo, [face_disc(person) for person in people])


def test_a_face_becomes_blocks_and_the_rest_stays():
    photo = Image.effect_noise(SIZE, 80).convert("RGB")
    someone = standing()
    hidden = np.asarray(hidden_heads(photo, someone)).astype(int)
    before = np.asarray(photo).astype(int)
    changed = np.argwhere((hidden != before).any(-1))[:, ::-1]
    nose, head = someone.joints_2d[list(H36M_17.indices("nose", "head"))]
    centre = (nose + head) / 2
    radius = 170 * 600 / 3000  # mm to px of this camera at 3 m
    assert np.linalg.norm(changed + 0.5 - centre, axis=1).max() < radius * 1.1 + 1
    x, y = centre.astype(int)
    inside = (slice(y - 15, y + 16), slice(x - 15, x + 16))
    assert hidden[inside].std() < 0.4 * before[inside].std()
    for name in ("left_wrist", "pelvis", "right_ankle"):
        x, y = someone.joints_2d[H36M_17.index(name)].astype(int)
        assert (hidden[y, x] == before[y, x]).all()


def test_a_face_at_the_border_is_hidden_as_far_as_it_is_there():
    photo = Image.effect_noise(SIZE, 80).convert("RGB")
    someone = standing()
    corner = someone.joints_2d - someone.joints_2d[H36M_17.index("head")]
    hidden = np.asarray(hidden_heads(photo, dataclasses.replace(someone, joints_2d=corner)))
    assert (hidden[:10, :10] != np.asarray(photo)[:10, :10]).any()
    away = hidden_heads(photo, dataclasses.replace(someone, joints_2d=corner - 5000))
    assert away.tobytes() == photo.tobytes()
