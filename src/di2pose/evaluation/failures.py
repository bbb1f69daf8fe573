"""The worst records of every protocol as one self-contained HTML page: picture, both skeletons, front and side view."""

import base64
import io
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.record_log import RecordLine, RecordResult
from di2pose.evaluation.report import METRICS, EvaluationReport
from di2pose.evaluation.runs import Work
from di2pose.evaluation.scoring import SHARES, Scorer, headline
from di2pose.files import write_text
from di2pose.image.crop import Roi, crop, roi_from_box
from di2pose.occlusion.heatmap import draw_heatmap
from di2pose.occlusion.patch_textures import REFERENCE_SIDE
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, occlude_limb, person_crop
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


def write_failures_page(
    work: Work, report: EvaluationReport, lines: dict[str, list[RecordLine]], path: Path, count: int
) -> None:
    """The `count` records with the greatest error of each protocol, by the estimate of the most hypotheses."""
    most = max(work.hypotheses)
    body = [f"<h1>Worst {count} records</h1><p>{escape(report['run']['predictor'])} on {escape(work.dataset.name)}. "]
    body.append("<b class=t>Green: truth.</b> <b class=p>Orange: prediction.</b> Front is the camera's view.</p>")
    for scorer in work.scorers.values():
        protocol = scorer.protocol
        metric = next(metric for metric in protocol.metrics if metric not in SHARES)
        records = report["records"][protocol.id]
        errors = dict(zip(records["ids"], records["values"][f"{most}/{headline(most)}/{metric}"], strict=True))
        measured = [line for line in lines[protocol.id] if line["id"] in errors]
        found = sorted(measured, key=lambda line: -(errors[line["id"]] or 0))
        heading = f"{protocol.id}: {METRICS[metric][0]}, {headline(most)} ({most})"
        searched = protocol.occlusion is not None and protocol.occlusion.kind == "advocc"  # heat maps are wide
        body.append(f"<h2>{escape(heading)}</h2><section{' class=wide' if searched else ''}>")
        body += [_figure(work, scorer, line, errors[line["id"]] or 0) for line in found[:count]] + ["</section>"]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    text = f'<!doctype html><html lang="en"><head><title>Worst records</title>{head}</head><body>'
    write_text(path, text + "\n".join(body) + "</body></html>\n")


def _figure(work: Work, scorer: Scorer, line: RecordLine, mm: float) -> str:
    sample, result, bones = work.dataset[line["row"]], line["results"][scorer.protocol.id], _bones(scorer)
    caption = f"<b>{mm:.1f} mm</b> {escape(sample.id)}"
    pose = np.array(result["pose"])
    truth, known = (part.numpy() for part in scorer.truth(sample))
    drawn = [_svg(pose, truth, known, bones, axis, title) for axis, title in ((0, "front"), (2, "side, camera left"))]
    picture = ""
    try:
        if sample.image is None:
            raise InputError("no picture")
        view, buffer = _picture(work, scorer, sample, result, bones), io.BytesIO()
        view.save(buffer, "JPEG", quality=85)
        code = base64.b64encode(buffer.getvalue()).decode()
        picture = f'<img alt="picture" width="{view.width}" src="data:image/jpeg;base64,{code}">'
    except (InputError, OSError) as error:
        caption += f" ({escape(str(error))})"
    views = f"{picture}<div>{''.join(drawn)}</div>"
    return f"<figure><div class=views>{views}</div><figcaption>{caption}</figcaption></figure>"


def _picture(
    work: Work, scorer: Scorer, sample: Sample, result: RecordResult, bones: list[tuple[int, int]]
) -> Image.Image:
    image, occlusion, joints = work.dataset.read_image(sample), scorer.protocol.occlusion, scorer.protocol.root
    seed, textures = work.seeds[0], work.textures
    if occlusion is not None and occlusion.kind == "advocc" and sample.box is not None:
        region = person_crop(sample.box)
        errors = np.array(result["placement_errors_mm"], float)
        most = max(result["worst_placement"], key=int)
        placement = advocc_placements(occlusion.size)[result["worst_placement"][most]]
        occluded = advocc_image(image, sample.id, region, placement, seed, textures)
        clean_mm = result["values"][f"{most}/{headline(int(most))}/clean_mpjpe"][0]
        return draw_heatmap(image, occluded, region, occlusion.size, errors, clean_mm)
    if occlusion is not None:
        patch = Rectangle(*result["patch"])
        roi = Roi((0.0, 0.0), (patch.x1 - patch.x0) * REFERENCE_SIDE / occlusion.size)
        image = occlude_limb(image, sample, work.dataset.skeleton, occlusion.size, seed, textures, roi).image
    roi = roi_from_box(sample.box or (0, 0, *image.size), margin=1.25 if sample.box else 1.0)
    view = Image.fromarray(crop(image, roi, SIDE))
    drawn = []
    if sample.joints_2d is not None:
        drawn.append((scorer.points(sample), TRUTH))
    if sample.camera is not None and sample.root_mm is not None:
        root = sample.root_mm  # of the record; the protocol's lies where its joints do
        if joints != ("pelvis",):
            root = sample.joints_mm[list(scorer.truth_skeleton.indices(*joints))].mean(0).astype(np.float64) + root
        drawn.append((sample.camera.project(np.array(result["pose"]) + root), PREDICTION))
    pen = ImageDraw.Draw(view)
    for points, colour in drawn:
        at = roi.to_crop(points, SIDE)
        for ends in (at[list(bone)] for bone in bones):
            if np.isfinite(ends).all():
                pen.line([(float(x), float(y)) for x, y in ends], fill=colour, width=3)
    return view


def _bones(scorer: Scorer) -> list[tuple[int, int]]:
    place = {joint: at for at, joint in enumerate(scorer.columns)}
    bones = [(place[c], place[p]) for c, p in scorer.protocol.skeleton.bones if c in place and p in place]
    if scorer.protocol.joints == LIMB_12:  # the trunk, which has no joints of its own here
        at = {name: place[scorer.protocol.skeleton.index(name)] for name in LIMB_12}
        corners = [at[name] for name in ("left_shoulder", "right_shoulder", "right_hip", "left_hip")]
        bones += list(zip(corners, corners[1:] + corners[:1], strict=True))
    return bones


def _svg(
    pose: np.ndarray, truth: np.ndarray, known: np.ndarray, bones: list[tuple[int, int]], axis: int, title: str
) -> str:
    """Both poses in one view: `axis` to the right, y down; just large enough to hold both."""
    reach = 1.05 * max(float(np.abs(pose).max()), float(np.abs(truth[known]).max()))
    parts = []
    for joints, shown, colour in ((truth, known, TRUTH), (pose, np.ones(len(pose), bool), PREDICTION)):
        at = (joints[:, [axis, 1]] / reach + 1) * 110
        for a, b in bones:
            if shown[a] and shown[b]:
                ends = f'x1="{at[a, 0]:.1f}" y1="{at[a, 1]:.1f}" x2="{at[b, 0]:.1f}" y2="{at[b, 1]:.1f}"'
                parts.append(f'<line {ends} stroke="{colour}" stroke-width="2.5" stroke-linecap="round"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in at[shown]]
    label = f'<text x="6" y="236" font-size="14" fill="#666">{title}, {2 * reach / 1000:.1f} m across</text>'
    return f'<svg viewBox="0 0 220 240" width="160" role="img" aria-label="{title}">{"".join(parts)}{label}</svg>'
