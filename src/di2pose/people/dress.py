"""A dressed person as one mesh: the visible skin, clothes, shoes, hair and eyes, ready to be posed and drawn."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from di2pose.people.body import Body, model, strongest
from di2pose.people.retarget import Rig
from di2pose.people.textures import recolour_cloth, recolour_hair, recolour_skin
from di2pose.people.wardrobe import Outfit, item, skin_texture

LAYER_M = {"skin": 0.0, "shoes": 0.004, "bottom": 0.008, "top": 0.012, "hair": 0.006, "eyebrows": 0.004, "eyes": -0.001}
"""How much nearer to the camera a layer counts in the depth test, so that what lies under does not poke through."""


@dataclass(frozen=True)
class Person:
    """One adult in clothes, at rest. N vertices, F faces, M materials."""

    body: Body
    rig: Rig
    outfit: Outfit
    vertices: np.ndarray
    bone_index: np.ndarray
    bone_weight: np.ndarray
    bias: np.ndarray
    faces: np.ndarray
    face_uv: np.ndarray
    face_kind: np.ndarray
    face_bone: np.ndarray
    """(F,) the bone that moves most of each face."""
    uv: np.ndarray
    atlas: np.ndarray
    gloss: np.ndarray


def dress(body: Body, outfit: Outfit, generator: np.random.Generator) -> Person:
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
    kept, skin_faces = np.unique(base.faces[visible], return_inverse=True)

    vertices, index, weight = [body.vertices[kept]], [base.bone_index[kept]], [base.bone_weight[kept]]
    bias = [np.full(len(kept), LAYER_M["skin"], np.float32)]
    faces, face_uv, uv = [skin_faces.reshape(-1, 3)], [base.face_uv[visible]], [base.uv]
    kind = [np.zeros(int(visible.sum()), np.int32)]
    hair_tone = generator.random()
    atlas, gloss = [recolour_skin(skin_texture(outfit.skin), generator)], [0.06]
    for material, (thing, layer) in enumerate(worn, start=1):
        place = thing.fit(body)
        bones_of_item = bones_of(thing.name)
        faces.append(thing.faces + sum(map(len, vertices)))
        face_uv.append(thing.face_uv + sum(map(len, uv)))
        uv.append(thing.uv)
        vertices.append(place)
        index.append(bones_of_item[0])
        weight.append(bones_of_item[1])
        bias.append(np.full(len(place), LAYER_M[layer], np.float32))
        kind.append(np.full(len(thing.faces), 4 * material + 2 * thing.cut_out + 1, np.int32))
        if layer in ("hair", "eyebrows") and thing.name != outfit.hat:
            atlas.append(recolour_hair(thing.texture, hair_tone))
            gloss.append(0.15)
        elif layer == "eyes":
            atlas.append(thing.texture)
            gloss.append(0.3)
        else:
            atlas.append(recolour_cloth(thing.texture, generator))
            gloss.append(0.15 if layer == "shoes" else 0.02)
    bones = np.concatenate(index)
    triangles = np.concatenate(faces).astype(np.int32)
    return Person(
        body=body,
        rig=Rig(body),
        outfit=outfit,
        vertices=np.concatenate(vertices),
        bone_index=bones,
        bone_weight=np.concatenate(weight),
        bias=np.concatenate(bias),
        faces=triangles,
        face_uv=np.concatenate(face_uv).astype(np.int32),
        face_kind=np.concatenate(kind),
        face_bone=bones[triangles[:, 0], 0],
        uv=np.concatenate(uv),
        atlas=np.stack(atlas),
        gloss=np.array(gloss, np.float32),
    )


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
