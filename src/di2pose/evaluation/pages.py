"""Pictures of single records: worst.html, and the heat maps of AdvOcc's search."""

import base64
import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageOps

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.measure import Setup
from di2pose.evaluation.report import METRICS
from di2pose.evaluation.scoring import SHARES, Scorer, headline
from di2pose.files import Json, replacing, write_text
from di2pose.image.crop import Roi, crop, roi_from_box
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import (
    CROP_HEIGHT,
    CROP_WIDTH,
    STRIDE,
    advocc_image,
    advocc_placements,
    occlude_limb,
    person_crop,
)
from di2pose.occlusion.textures import REFERENCE_SIDE
from di2pose.output.overlay import EDGE, Pen, font, side_colour
from di2pose.pose.skeleton import LIMB_12

TRUTH, PREDICTION, SIDE = "#15803d", "#e4572e", 300
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1180px;padding:0 1rem;color:#222}
section{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(540px,100%),1fr));gap:1rem}
section.wide{grid-template-columns:1fr}
figure{margin:0;border:1px solid #ddd;border-radius:6px;padding:.6rem;overflow:hidden}
figure img{display:block;height:auto}figcaption{font-size:13px;overflow-wrap:anywhere}
.views{display:flex;gap:.5rem;align-items:flex-start}.views>div{flex:none;width:160px}
figure img{flex:0 1 auto;min-width:0}b.t{color:#15803d}b.p{color:#c2410c}"""
ZOOM, MARGIN, HEADER, BAR, STRIP = 2, 16, 78, 92, 18
"""Of heat maps, in pixels: crops are drawn ZOOM times as large; between them the scale, BAR wide, STRIP of it coloured.
"""
INK, FAINT, PAPER = (30, 30, 30), (105, 105, 105), (255, 255, 255)
RAMP = np.array([(12, 8, 38), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], float)
"""Colours from the least to the greatest error, brighter all the way."""
COVER = 0.6
"""Of the colours over the grey photo."""


def write_worst_page(setup: Setup, report: Json, lines: dict[str, list[Json]], path: Path, count: int) -> None:
    """A self-contained HTML page: the `count` records with the greatest error of each protocol, by the estimate of the
    most hypotheses, with picture, both skeletons, front and side view."""
    most = max(setup.hypotheses)
    predictor, dataset = escape(report["run"]["predictor"]), escape(setup.dataset.name)
    body = [f"<h1>Worst {count} records</h1><p>{predictor} on {dataset}. "]
    body.append("<b class=t>Green: truth.</b> <b class=p>Orange: prediction.</b> Front is the camera's view.</p>")
    for scorer in setup.scorers.values():
        protocol = scorer.protocol
        metric = next(metric for metric in protocol.metrics if metric not in SHARES)
        records = report["records"][protocol.id]
        values = records["values"][f"{most}/{headline(most)}/{metric}"]
        errors = {name: value or 0 for name, value in zip(records["ids"], values, strict=True)}
        measured = [line for line in lines[protocol.id] if line["id"] in errors]
        found = sorted(measured, key=lambda line: -errors[line["id"]])[:count]
        heading = f"{protocol.id}: {METRICS[metric][0]}, {headline(most)} ({most})"
        body.append(f"<h2>{escape(heading)}</h2><section{' class=wide' * protocol.searches}>")  # heat maps are wide
        body += [_figure(setup, scorer, line, errors[line["id"]]) for line in found] + ["</section>"]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    text = f'<!doctype html><html lang="en"><head><title>Worst records</title>{head}</head><body>'
    write_text(path, text + "\n".join(body) + "</body></html>\n")


def _figure(setup: Setup, scorer: Scorer, line: Json, mm: float) -> str:
    sample, result = setup.dataset[line["row"]], line["results"][scorer.protocol.id]
    truth, known = (part.numpy() for part in scorer.truth(sample))
    caption, picture, poses = f"<b>{mm:.1f} mm</b> {escape(sample.id)}", "", (np.array(result["pose"]), truth, known)
    drawn = [_svg(*poses, bones(scorer), axis, title) for axis, title in ((0, "front"), (2, "side, camera left"))]
    try:
        if sample.image is None:
            raise InputError("no picture")
        view, buffer = _picture(setup, scorer, sample, result), io.BytesIO()
        view.save(buffer, "JPEG", quality=85)
        code = base64.b64encode(buffer.getvalue()).decode()
        picture = f'<img alt="picture" width="{view.width}" src="data:image/jpeg;base64,{code}">'
    except (InputError, OSError) as error:
        caption += f" ({escape(str(error))})"
    views = f"{picture}<div>{''.join(drawn)}</div>"
    return f"<figure><div class=views>{views}</div><figcaption>{caption}</figcaption></figure>"


def _picture(setup: Setup, scorer: Scorer, sample: Sample, result: Json) -> Image.Image:
    image, occlusion = setup.dataset.read_image(sample), scorer.protocol.occlusion
    if scorer.protocol.searches:
        return search_picture(setup, scorer, sample, result)
    if occlusion is not None:
        patch, skeleton = Rectangle(*result["patch"]), setup.dataset.skeleton
        roi = Roi((0.0, 0.0), (patch.x1 - patch.x0) * REFERENCE_SIDE / occlusion.size)
        image = occlude_limb(image, sample, skeleton, occlusion.size, setup.seeds[0], setup.textures, roi).image
    roi = roi_from_box(sample.box or (0, 0, *image.size), margin=1.25 if sample.box else 1.0)
    view = Image.fromarray(crop(image, roi, SIDE))
    truth = None if sample.joints_2d is None else scorer.points(sample)
    pen = ImageDraw.Draw(view)
    for points, colour in ((truth, TRUTH), (projected(scorer, sample, np.array(result["pose"])), PREDICTION)):
        at = None if points is None else roi.to_crop(points, SIDE)
        for ends in () if at is None else (at[list(bone)] for bone in bones(scorer)):
            if np.isfinite(ends).all():
                pen.line([(float(x), float(y)) for x, y in ends], fill=colour, width=3)
    return view


def _svg(
    pose: np.ndarray, truth: np.ndarray, known: np.ndarray, lines: list[tuple[int, int]], axis: int, title: str
) -> str:
    """Both poses in one view: `axis` to the right, y down; just large enough to hold both."""
    reach = 1.05 * max(float(np.abs(pose).max()), float(np.abs(truth[known]).max()))
    parts = []
    for joints, shown, colour in ((truth, known, TRUTH), (pose, np.ones(len(pose), bool), PREDICTION)):
        at = (joints[:, [axis, 1]] / reach + 1) * 110
        for a, b in lines:
            if shown[a] and shown[b]:
                ends = f'x1="{at[a, 0]:.1f}" y1="{at[a, 1]:.1f}" x2="{at[b, 0]:.1f}" y2="{at[b, 1]:.1f}"'
                parts.append(f'<line {ends} stroke="{colour}" stroke-width="2.5" stroke-linecap="round"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in at[shown]]
    label = f'<text x="6" y="236" font-size="14" fill="#666">{title}, {2 * reach / 1000:.1f} m across</text>'
    return f'<svg viewBox="0 0 220 240" width="160" role="img" aria-label="{title}">{"".join(parts)}{label}</svg>'


def bones(scorer: Scorer) -> list[tuple[int, int]]:
    """Pairs of the protocol's K joints."""
    place = {joint: at for at, joint in enumerate(scorer.columns)}
    found = [(place[c], place[p]) for c, p in scorer.protocol.skeleton.bones if c in place and p in place]
    if scorer.protocol.joints == LIMB_12:  # the trunk, which has no joints of its own here
        corners = [LIMB_12.index(name) for name in ("left_shoulder", "right_shoulder", "right_hip", "left_hip")]
        found += list(zip(corners, corners[1:] + corners[:1], strict=True))
    return found


def projected(scorer: Scorer, sample: Sample, pose: Float[np.ndarray, "K 3"]) -> Float[np.ndarray, "K 2"] | None:
    """Pixels of a pose at the protocol's root, with that root at the record's; None where the record's is unknown."""
    if sample.camera is None or sample.root_mm is None:
        return None
    root = sample.root_mm.astype(np.float64)
    if scorer.protocol.root != ("pelvis",):
        joints = list(scorer.truth_skeleton.indices(*scorer.protocol.root))
        root = sample.joints_mm[joints].mean(0).astype(np.float64) + root
    points: np.ndarray = sample.camera.project(pose + root)
    return points


def write_heatmaps(setup: Setup, scorer: Scorer, lines: Sequence[Json], folder: Path, name: str) -> None:
    """A JPEG of the search on each record that was measured."""
    key = scorer.protocol.id
    for line in (line for line in lines if "pose" in line.get("results", {}).get(key, {})):
        picture = search_picture(setup, scorer, setup.dataset[line["row"]], line["results"][key], name)
        with replacing(folder / f"{key}-{re.sub(r'[^A-Za-z0-9._-]+', '_', line['id'])}.jpg") as temporary:
            picture.save(temporary, "JPEG", quality=92, subsampling=0)


def search_picture(setup: Setup, scorer: Scorer, sample: Sample, result: Json, name: str = "") -> Image.Image:
    """The search on one record, by its greatest number of hypotheses; `name`: of the predictor."""
    occlusion, image = scorer.protocol.occlusion, setup.dataset.read_image(sample)
    assert occlusion is not None
    assert sample.box is not None  # or it would have been left out
    region, most = person_crop(sample.box), max(result["worst_placements"], key=int)
    placement = advocc_placements(occlusion.size)[result["worst_placements"][most][0]]
    occluded = advocc_image(image, sample.id, region, placement, setup.seeds[0], setup.textures)
    pose, truth = projected(scorer, sample, np.array(result["pose"])), scorer.points(sample)
    mm = {metric: numbers[0] for count, _, metric, _, numbers in result["values"] if count == int(most)}
    errors = np.array(result["placement_errors_mm"], float)
    title = f"{name + ', ' if name else ''}{scorer.protocol.id}: {sample.id}"
    view = _with_poses(_view(occluded, region), scorer, region, truth, pose)
    return draw_heatmap(image, view, region, occlusion.size, errors, title, mm["clean_mpjpe"], mm["mpjpe"])


def draw_heatmap(
    clean: Image.Image,
    worst_view: Image.Image,
    crop: Rectangle,
    size: int,
    errors_mm: Float[np.ndarray, " P"],
    title: str = "",
    clean_mm: float | None = None,
    worst_mm: float | None = None,
) -> Image.Image:
    """Left the clean crop with each placement's error drawn at its patch's centre, and the scale; right `worst_view`,
    the crop with the worst patch, at ZOOM.

    `errors_mm`: one per placement of `advocc_placements(size)`; NaN where no joint was visible (left unpainted).
    `worst_mm`: that of the worst, where it was predicted again with more steps.
    """
    placements = advocc_placements(size)
    if len(errors_mm) != len(placements) or np.isnan(errors_mm).all():
        raise InputError(f"advocc-{size} needs {len(placements)} placement errors, not all NaN; got {len(errors_mm)}")
    worst, low, high = int(np.nanargmax(errors_mm)), float(np.nanmin(errors_mm)), float(np.nanmax(errors_mm))
    width, height = CROP_WIDTH * ZOOM, CROP_HEIGHT * ZOOM
    second = MARGIN + width + BAR
    canvas = Image.new("RGB", (second + width + MARGIN, HEADER + height + MARGIN), PAPER)
    grey, half = np.array(ImageOps.grayscale(_view(clean, crop)).convert("RGB")), STRIDE / 2
    for placement, level in zip(placements, (errors_mm - low) / max(high - low, 1e-9), strict=True):
        if not np.isnan(level):
            middle = placement.x + size / 2, placement.y + size / 2
            columns, rows = (slice(round(ZOOM * (at - half)), round(ZOOM * (at + half))) for at in middle)
            cell = grey[rows, columns]
            grey[rows, columns] = ((1 - COVER) * cell + COVER * colour(np.asarray(level))).astype(np.uint8)
    canvas.paste(Image.fromarray(grey), (MARGIN, HEADER))
    canvas.paste(worst_view, (second, HEADER))
    strip = np.repeat(colour(np.linspace(1, 0, height))[:, None], STRIP, axis=1)
    canvas.paste(Image.fromarray(strip), (MARGIN + width + 10, HEADER))

    pen = ImageDraw.Draw(canvas)
    box = placements[worst].patch(Rectangle(0, 0, CROP_WIDTH, CROP_HEIGHT))
    for left in (MARGIN, second):
        x0, y0 = left + ZOOM * box.x0, HEADER + ZOOM * box.y0
        x1, y1 = left + ZOOM * box.x1 - 1, HEADER + ZOOM * box.y1 - 1
        pen.rectangle((x0 - 1, y0 - 1, x1 + 1, y1 + 1), outline=EDGE, width=1)
        pen.rectangle((x0, y0, x1, y1), outline=PAPER, width=2)
    x, y = MARGIN + ZOOM * (placements[worst].x + size / 2), HEADER + ZOOM * (placements[worst].y + size / 2)
    pen.ellipse((x - 6, y - 6, x + 6, y + 6), fill=PAPER, outline=EDGE, width=2)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = (MARGIN + width + 10 + STRIP + 6, HEADER + 7 + (1 - share) * (height - 14))
        pen.text(at, f"{low + share * (high - low):.0f} mm", INK, font(13), anchor="lm")
    against = "" if clean_mm is None else f", of the same joints without a patch {clean_mm:.1f} mm"
    worst_is = f"Worst of {len(placements)} placements: {worst_mm or high:.1f} mm{against}"
    while font(16).getlength(title) > canvas.width - 2 * MARGIN:
        title = title[:-2].rstrip(".") + "…"
    words = [(MARGIN, 18, title, 16, INK), (MARGIN, 41, worst_is, 14, INK)]
    words += [(MARGIN, 64, "error by the patch's centre (visible joints)", 13, FAINT)]
    words += [(second, 64, "the worst patch; truth white, right side green, left side blue", 13, FAINT)]
    for x, y, text, points, ink in words:
        pen.text((x, y), text, ink, font(points), anchor="lm")
    return canvas


def colour(level: Float[np.ndarray, "*B"]) -> np.ndarray:
    """RGB uint8 (..., 3) of levels in [0, 1]."""
    at = np.clip(level, 0, 1) * (len(RAMP) - 1)
    channels = [np.interp(at, np.arange(len(RAMP)), RAMP[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def _view(image: Image.Image, crop: Rectangle) -> Image.Image:
    """The crop at ZOOM; black where it reaches out of the picture."""
    size = (CROP_WIDTH * ZOOM, CROP_HEIGHT * ZOOM)
    scale = (crop.x1 - crop.x0) / size[0]
    matrix = (scale, 0, crop.x0, 0, scale, crop.y0)
    return image.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _with_poses(
    view: Image.Image,
    scorer: Scorer,
    crop: Rectangle,
    truth: Float[np.ndarray, "K 2"],
    pose: Float[np.ndarray, "K 2"] | None,
) -> Image.Image:
    """The truth thin and white, the pose in the colours of its sides; points in pixels of the picture."""
    pen, scale = Pen(view.size), view.width / (crop.x1 - crop.x0)
    skeleton, columns = scorer.protocol.skeleton, scorer.columns
    for points, width in ((truth, 2.0), (pose, 4.0)):
        at = [] if points is None else [((x - crop.x0) * scale, (y - crop.y0) * scale) for x, y in points.tolist()]
        for a, b in bones(scorer) if at else ():
            if np.isfinite((at[a], at[b])).all():
                tint = PAPER if points is truth else side_colour(skeleton, columns[a], columns[b])
                pen.line(at[a], at[b], width, tint, EDGE)
    return pen.over(view)
