"""The worst records of every protocol as one self-contained HTML page: picture, both skeletons, front and side view."""

import base64
import io
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.drawn_pose import bones, projected
from di2pose.evaluation.heatmap import search_picture
from di2pose.evaluation.record_log import RecordLine, RecordResult
from di2pose.evaluation.report import METRICS, EvaluationReport
from di2pose.evaluation.runs import Work
from di2pose.evaluation.scoring import SHARES, Scorer, headline
from di2pose.files import write_text
from di2pose.image.crop import Roi, crop, roi_from_box
from di2pose.occlusion.patch_textures import REFERENCE_SIDE
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import occlude_limb

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
    sample, result, lines = work.dataset[line["row"]], line["results"][scorer.protocol.id], bones(scorer)
    caption = f"<b>{mm:.1f} mm</b> {escape(sample.id)}"
    pose = np.array(result["pose"])
    truth, known = (part.numpy() for part in scorer.truth(sample))
    drawn = [_svg(pose, truth, known, lines, axis, title) for axis, title in ((0, "front"), (2, "side, camera left"))]
    picture = ""
    try:
        if sample.image is None:
            raise InputError("no picture")
        view, buffer = _picture(work, scorer, sample, result), io.BytesIO()
        view.save(buffer, "JPEG", quality=85)
        code = base64.b64encode(buffer.getvalue()).decode()
        picture = f'<img alt="picture" width="{view.width}" src="data:image/jpeg;base64,{code}">'
    except (InputError, OSError) as error:
        caption += f" ({escape(str(error))})"
    views = f"{picture}<div>{''.join(drawn)}</div>"
    return f"<figure><div class=views>{views}</div><figcaption>{caption}</figcaption></figure>"


def _picture(work: Work, scorer: Scorer, sample: Sample, result: RecordResult) -> Image.Image:
    image, occlusion = work.dataset.read_image(sample), scorer.protocol.occlusion
    if occlusion is not None and occlusion.kind == "advocc":
        return search_picture(work, scorer, sample, result)
    if occlusion is not None:
        patch = Rectangle(*result["patch"])
        roi = Roi((0.0, 0.0), (patch.x1 - patch.x0) * REFERENCE_SIDE / occlusion.size)
        image = occlude_limb(
            image, sample, work.dataset.skeleton, occlusion.size, work.seeds[0], work.textures, roi
        ).image
    roi = roi_from_box(sample.box or (0, 0, *image.size), margin=1.25 if sample.box else 1.0)
    view = Image.fromarray(crop(image, roi, SIDE))
    drawn = []
    if sample.joints_2d is not None:
        drawn.append((scorer.points(sample), TRUTH))
    if (points := projected(scorer, sample, np.array(result["pose"]))) is not None:
        drawn.append((points, PREDICTION))
    pen = ImageDraw.Draw(view)
    for points, colour in drawn:
        at = roi.to_crop(points, SIDE)
        for ends in (at[list(bone)] for bone in bones(scorer)):
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
