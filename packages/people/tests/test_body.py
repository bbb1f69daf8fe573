"""Adults, and Anny's own mathematics."""

import numpy as np
import torch
from anny.models.phenotype import make_phenotype_anchors, phenotype_blendshape_weights
from di2pose_people.body import ADULT_AGE, HEAD_TOP, SLIDERS, STATURE_M, draw_shape, model


def test_everybody_is_an_adult():
    generator = np.random.default_rng(0)
    shapes = [draw_shape(generator) for _ in range(300)]
    assert min(shape["age"] for shape in shapes) >= ADULT_AGE
    statures = [shape.stature_m for shape in shapes]
    assert STATURE_M[0] <= min(statures) < 1.6 < 1.85 < max(statures) <= STATURE_M[1]
    genders = np.array([shape["gender"] for shape in shapes])
    assert 0.35 < (genders > 0.5).mean() < 0.65


def test_a_body_has_its_stature():
    shape = draw_shape(np.random.default_rng(1))
    body = model().body(shape)
    skin = body.vertices[model().skin_vertices]
    assert abs(skin[:, 2].max() - skin[:, 2].min() - shape.stature_m) < 0.005
    assert body.vertices[HEAD_TOP, 2] == skin[:, 2].max()


def test_sliders_blend_as_in_anny():
    base = model()
    for seed in range(5):
        shape = draw_shape(np.random.default_rng(seed))
        values = torch.tensor([[*shape.sliders, *shape.ancestry]], dtype=torch.float64)
        theirs = phenotype_blendshape_weights(
            values,
            [*SLIDERS, "african", "asian", "caucasian"],
            make_phenotype_anchors(torch.float64),
            torch.from_numpy(np.array(base.products, np.float64)),
            extrapolate=False,
        )
        assert np.allclose(base.weights(shape), theirs.numpy()[0] @ base.projection, atol=1e-6)
