"""The tree is the data flow: a room imports only rooms below it."""

import ast
from pathlib import Path

import di2pose

ROOT = Path(di2pose.__file__).parent
BASE = {
    "errors", "noise", "files", "garbage", "text_table", "interruption", "device",
}  # fmt: skip
LEVEL = {"pose": BASE, "assets": BASE, "config": BASE | {"pose"}}
LEVEL |= {"options": BASE | {"image", "pose"}}
LEVEL |= {room: BASE | {"pose", "config", "assets", "tokenizer", room} for room in ("tokenizer", "diffusion", "image")}
LEVEL |= {"data": BASE | {"pose", "assets", "image"}, "occlusion": BASE | {"pose", "assets", "image", "data"}}
LEVEL |= {"result": BASE | {"pose", "output"}, "output": BASE | {"pose", "result", "image", "data", "pipeline"}}
LEVEL |= {"recipes": {"config"}, "checkpoint": BASE | {"config"}, "calibration": BASE | {"config", "pose"}}
# The model, which knows nothing of pictures, and the kinds of it; then what leads from pixels to people.
LEVEL |= {"model": BASE | {"config", "checkpoint", "pose"}}
MODEL = BASE | {"config", "model", "pose", "diffusion", "tokenizer"}
LEVEL |= {"network": MODEL, "baselines": MODEL | {"image", "recipes"}}
LEVEL |= {"pipeline": MODEL | {"options", "image", "calibration", "network", "result"}}
# In `onnx` only what writes a folder may know PyTorch's side; what reads one runs without it (tests/onnx).
LEVEL |= {"onnx": MODEL | {"pipeline", "network", "assets", "image", "calibration"}}
BELOW = {*LEVEL, *BASE}
LEVEL |= {"training": BELOW, "evaluation": BELOW, "video": BELOW - {"occlusion"}}
LEVEL |= {"commands": BELOW | {"video"}, "serve": BELOW | {"video"}}
# Of the image room, the dataset side may use the crop and the reader only.
FROM_FEATURES = ("feature_cache", "lift")
IMAGE_FOR_DATA = {"di2pose.image.crop", "di2pose.image.read"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("di2pose"):
            yield from [node.module] if node.module != "di2pose" else [f"di2pose.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("di2pose"))


def test_imports_point_downwards():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room not in LEVEL:
            continue
        for name in imports(path):
            target = name.partition(".")[2].partition(".")[0] or "__version__"  # `import di2pose` itself
            if target == "__version__":
                continue
            ok = target == room or target in LEVEL[room]
            if target == "image" and room in ("data", "occlusion") and path.stem not in FROM_FEATURES:
                ok = name in IMAGE_FOR_DATA
            if not ok:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_every_room_is_placed():
    rooms = {p.name.removesuffix(".py") for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert rooms - LEVEL.keys() - BASE == {"__init__", "__main__", "cli"}


def test_torchvision_is_never_imported():
    text = "\n".join(p.read_text() for p in ROOT.rglob("*.py"))
    assert "torchvision" not in text
