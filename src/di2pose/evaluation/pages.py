"""worst.html: the records with the greatest errors."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.report import METRICS
from di2pose.evaluation.scoring import Scorer, headline
from di2pose.files import Json, write_text
from di2pose.image.crop import Roi, crop, roi_from_box
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, occlude_limb, person_crop
from di2pose.occlusion.textures import REFERENCE_SIDE
from di2pose.output.overlay import data_uri
from di2pose.pose.skeleton import LIMB_12

if TYPE_CHECKING:
    from di2pose.evaluation.run import Run

TRUTH, PREDICTION, SIDE = "#15803d", "#e4572e", 300
Poses = tuple[tuple[np.ndarray, str], ...]
"""Joints, NaN where not annotated, and their colour."""
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1180px;padding:0 1rem;color:#222}
section{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(540px,100%),1fr));gap:1rem}
figure{margin:0;border:1px solid #ddd;border-radius:6px;padding:.6rem;overflow:hidden}
figure img{display:block;height:auto;flex:0 1 auto;min-width:0}figcaption{font-size:13px;overflow-wrap:anywhere}
.views{display:flex;gap:.5rem;align-items:flex-start}.views>div{flex:none;width:160px}
b.t{color:#15803d}b.p{color:#c2410c}"""


def write_worst_page(run: "Run", report: Json, lines: dict[str, list[Json]], path: Path, count: int) -> None:
    """A self-contained HTML page: the `count` records with the greatest error of each protocol, by the estimate of the
    most hypotheses, with picture, both skeletons, front and side view."""
    most = max(run.hypotheses)
    predictor, dataset = escape(report["run"]["predictor"]), escape(run.dataset.name)
    body = [f"<h1>Worst {count} records</h1><p>{predictor} on {dataset}. "]
    body.append("<b class=t>Green: truth.</b> <b class=p>Orange: prediction.</b> Front is the camera's view.</p>")
    for scorer in run.scorers.values():
        protocol, metric = scorer.protocol, scorer.errors[0]
        records = report["records"][protocol.id]
        values = records["values"][f"{most}/{headline(most)}/{metric}"]
        errors = {name: value or 0 for name, value in zip(records["ids"], values, strict=True)}
        measured = [line for line in lines[protocol.id] if line["id"] in errors]
        found = sorted(measured, key=lambda line: -errors[line["id"]])[:count]
        heading = f"{protocol.id}: {METRICS[metric][0]}, {headline(most)} ({most})"
        body.append(f"<h2>{escape(heading)}</h2><section>")
        body += [_figure(run, scorer, line, errors[line["id"]]) for line in found] + ["</section>"]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    text = f'<!doctype html><html lang="en"><head><title>Worst records</title>{head}</head><body>'
    write_text(path, text + "\n".join(body) + "</body></html>\n")


def _figure(run: "Run", scorer: Scorer, line: Json, mm: float) -> str:
    sample, result = run.dataset[line["row"]], line["results"][scorer.protocol.id]
    (truth, known), pose, lines = scorer.truth(sample), np.array(result["pose"]), bones(scorer)
    poses = ((np.where(known[:, None], truth, np.nan), TRUTH), (pose, PREDICTION))
    caption, picture = f"<b>{mm:.1f} mm</b> {escape(sample.id)}", ""
    drawn = [_svg(poses, lines, axis, title) for axis, title in ((0, "front"), (2, "side, camera left"))]
    try:
        if sample.image is None:
            raise InputError("no picture")
        view = _picture(run, scorer, sample, result)
        picture = f'<img alt="picture" width="{view.width}" src="{data_uri(view, SIDE, 85)}">'
    except (InputError, OSError) as error:
        caption += f" ({escape(str(error))})"
    views = f"{picture}<div>{''.join(drawn)}</div>"
    return f"<figure><div class=views>{views}</div><figcaption>{caption}</figcaption></figure>"


def _picture(run: "Run", scorer: Scorer, sample: Sample, result: Json) -> Image.Image:
    """The record's crop, with its patch, and both poses; without the prediction where the record's root is unknown."""
    image, occlusion = run.dataset.read_image(sample), scorer.protocol.occlusion
    if scorer.protocol.searches and occlusion is not None and sample.box is not None:
        worst = advocc_placements(occlusion.size)[result["worst_placements"][str(max(run.hypotheses))][0]]
        image = advocc_image(image, sample.id, person_crop(sample.box), worst, run.seed, run.textures)
    elif occlusion is not None:
        patch, skeleton = Rectangle(*result["patch"]), run.dataset.skeleton
        roi = Roi((0.0, 0.0), (patch.x1 - patch.x0) * REFERENCE_SIDE / occlusion.size)
        image = occlude_limb(image, sample, skeleton, occlusion.size, run.seed, run.textures, roi).image
    roi = roi_from_box(sample.box or (0, 0, *image.size), margin=1.25 if sample.box else 1.0)
    view = Image.fromarray(crop(image, roi, SIDE))
    drawn = [] if sample.joints_2d is None else [(scorer.points(sample), TRUTH)]
    if sample.camera is not None and sample.root_mm is not None:
        root = sample.root_mm.astype(np.float64)
        if scorer.protocol.root != ("pelvis",):
            joints = list(scorer.truth_skeleton.indices(*scorer.protocol.root))
            root = sample.joints_mm[joints].mean(0).astype(np.float64) + root
        drawn.append((sample.camera.project(np.array(result["pose"]) + root), PREDICTION))
    pen = ImageDraw.Draw(view)
    for points, colour in drawn:
        for ends in (roi.to_crop(points, SIDE)[list(bone)] for bone in bones(scorer)):
            if np.isfinite(ends).all():
                pen.line([(float(x), float(y)) for x, y in ends], fill=colour, width=3)
    return view


def _svg(poses: Poses, lines: list[tuple[int, int]], axis: int, title: str) -> str:
    """Both poses in one view: `axis` to the right, y down; just large enough to hold both."""
    reach = 1.05 * max(float(np.nanmax(np.abs(joints))) for joints, _ in poses)
    parts = []
    for joints, colour in poses:
        for (x1, y1), (x2, y2) in ((joints[:, [axis, 1]] / reach + 1) * 110)[lines].tolist():
            if np.isfinite([x1, x2]).all():
                ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
                parts.append(f'<line {ends} stroke="{colour}" stroke-width="2.5" stroke-linecap="round"/>')
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
