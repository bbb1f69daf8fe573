"""Request fields and routes: requests are checked by these tables, and /openapi.json is made of them."""

import inspect
import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from di2pose.options import VIDEO_OPTIONS, Options, is_whole
from di2pose.pipeline.pipeline import SPARE
from di2pose.pipeline.request import REACH_MM
from di2pose.pose.skeleton import H36M_21
from di2pose.serve.limits import ApiError, Limits, TooDear

MOST_SEED = 2**63 - 1
MOST_PX = 1e6
"""Of a box's coordinates."""
PIN_PRICE = 8
"""How many times as much a step costs with pinned joints; measured: 5 to 7."""
PICTURE, VIDEO = "image", "video"
"""The fields that hold a file."""


def _box(values: list[float]) -> tuple[float, ...]:
    if min(values[2] - values[0], values[3] - values[1]) < 1:
        raise ValueError("must be [x0, y0, x1, y1] in pixels of the picture, at least a pixel wide and high")
    return tuple(values)


def _point(values: list[float]) -> tuple[float, ...]:
    if math.hypot(*values) > REACH_MM:
        raise ValueError(f"must be within {REACH_MM:g} mm of the pelvis")
    return tuple(values)


def _tokens(codes: dict[str, int]) -> dict[int, int]:
    return {int(position): code for position, code in codes.items()}


def _whole(low: int, high: int) -> Any:
    """An integer field: 2 and, as JSON Schema has it, 2.0."""
    as_int = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
    return Annotated[int, Field(ge=low, le=high), as_int]


Pixel = Annotated[float, Field(ge=-MOST_PX, le=MOST_PX)]
BoxField = Annotated[list[Pixel], Field(min_length=4, max_length=4), AfterValidator(_box)]
PointField = Annotated[list[float], Field(min_length=3, max_length=3), AfterValidator(_point)]
JointName: Any = Literal[H36M_21.joints]
Position = Annotated[str, Field(pattern="^[0-9]{1,6}$")]
SHARED = (*VIDEO_OPTIONS, "second_look", "boxes", "occluded", "pin", "keep_tokens")
REVEAL = SHARED[:-2]
LAB = (*SHARED, "patch", "grid", "at")
SEVERAL = (*VIDEO_OPTIONS, "second_look")
"""Fields of a request with several pictures: those that do not refer to a place in one of them."""


def field_texts(limits: Limits) -> dict[str, str]:
    """Meaning of every field: the docstrings of `Options`, and what only requests have."""
    pattern = re.compile(r"^    (\w+): [^\n]+\n    \"\"\"(.+?)\"\"\"", re.MULTILINE | re.DOTALL)
    texts = {name: " ".join(text.split()) for name, text in pattern.findall(inspect.getsource(Options))}
    texts["hypotheses"] += (
        f" Limit: people x hypotheses x steps may be {limits.price} at most (people: boxes, or max_people + {SPARE}; "
        f"with pins {PIN_PRICE} times as much; in a lab, places of the patch instead of people); of a video, frames x "
        f"max_people x hypotheses x steps {limits.video_price}."
    )
    return texts | {
        "patch": "Side of the patch over the picture's shorter side; 0.2 where it is left out.",
        "grid": "Placements a side; 6 where it is left out.",
        "at": "One patch, x0, y0, x1, y1: the answer is predict's.",
    }


@cache
def request_model(names: tuple[str, ...], limits: Limits) -> type[BaseModel]:
    """The fields of a request beside its file: types, defaults and bounds of `Options`, within the limits."""
    highest = {"hypotheses": limits.hypotheses, "steps": limits.steps, "max_people": limits.people, "seed": MOST_SEED}
    boxes = Annotated[list[BoxField], Field(min_length=1, max_length=limits.people)]
    code: Any = _whole(0, 2**31 - 1)
    tokens = Annotated[dict[Position, code], Field(max_length=10_000), AfterValidator(_tokens)]
    kinds: dict[str, tuple[Any, Any]] = {
        "second_look": (bool, Options.second_look),
        "boxes": (boxes | None, None),
        "occluded": (Annotated[list[BoxField], Field(max_length=limits.regions)], ()),
        "pin": (dict[JointName, PointField] | None, None),
        "keep_tokens": (tokens | None, None),
        "patch": (Annotated[float, Field(ge=0.05, le=0.5)] | None, None),
        "grid": (_whole(2, limits.grid) | None, None),
        "at": (BoxField | None, None),
    }
    for each in fields(Options):
        if each.metadata:
            least, most = each.metadata["least"], highest.get(each.name, each.metadata["most"])
            least = -most if least is None else least
            kind = _whole(least, most) if is_whole(each) else Annotated[float, Field(ge=least, le=most)]
            kinds[each.name] = (kind | None if each.default is None else kind, each.default)
    texts = field_texts(limits)
    shown: Any = {name: (kinds[name][0], Field(kinds[name][1], description=texts[name])) for name in names}
    return create_model("Request", __config__=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False), **shown)


def read_fields(given: Mapping[str, Any], names: tuple[str, ...], limits: Limits) -> dict[str, Any]:
    """JSON values -> options of a call; ApiError names the field that is wrong."""
    try:
        options = dict(request_model(names, limits).model_validate(dict(given)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"])
        problem = f"'{where}': {first['msg'].removeprefix('Value error, ')}, got {reprlib.repr(first['input'])}"
        if first["type"] == "extra_forbidden":
            problem = f"no field '{where}' here: such a request has its file and {', '.join(names)}"
        raise ApiError(400, problem) from None
    boxes = options.get("boxes") or ()
    if len(boxes) > 1 and (options.get("pin") or options.get("keep_tokens")):
        raise ApiError(400, f"'pin' and 'keep_tokens' are for one person: give one box in 'boxes', got {len(boxes)}")
    return options


def check_price(
    limits: Limits, options: Mapping[str, Any], own_steps: int, places: int = 0, frames: int | None = None,
    pictures: int = 1,
) -> int:  # fmt: skip
    """The price of a request; ApiError where it is above the limit. `own_steps`: the model's default; `places`: of the
    lab's patch; `frames`: of a video."""
    if frames is not None:
        factors = {"frames": frames, "max_people": options["max_people"]}
    elif places:
        factors = {"places": places}
    elif options.get("boxes"):
        factors = {"boxes": len(options["boxes"])}
    else:
        factors = {f"(max_people + {SPARE})": options["max_people"] + SPARE}
    factors |= {"hypotheses": options["hypotheses"], "steps": options["steps"] or own_steps}
    factors |= {f"{PIN_PRICE} with pins": PIN_PRICE} if options.get("pin") else {}
    factors |= {"pictures": pictures} if pictures > 1 else {}
    price, most = math.prod(factors.values()), limits.price if frames is None else limits.video_price
    if price > most:
        came = f"{' x '.join(map(str, factors.values()))} = {price} came"
        advice = "ask for fewer hypotheses, steps or people"
        raise TooDear(413, f"{' x '.join(factors)} may be {most} at most, {came}: {advice}")
    return price


@dataclass(frozen=True)
class Route:
    """One route of the API. `endpoint` names the method of `app.Service` that answers."""

    method: str
    path: str
    endpoint: str
    text: str
    files: tuple[str, ...] = ()
    """Fields one of which must hold the file."""
    fields: tuple[str, ...] = ()
    several: bool = False
    """Whether several pictures may come."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses beside those that other routes of its form have."""
    keeps: bool = False
    """Whether the answer has an ETag, for copies of clients."""

    def fields_of(self, kind: str) -> tuple[str, ...]:
        """The fields beside a file of that kind."""
        return tuple(name for name in self.fields if kind == PICTURE or name in VIDEO_OPTIONS)


ROUTES = (
    Route("GET", "/v1/health", "health", "whether it works, and how many requests wait"),
    Route("GET", "/v1/model", "about", "the model: joints, bones, defaults, limits, formats", keeps=True),
    Route("GET", "/v1/examples", "examples", "example people: names and titles", keeps=True),
    Route("GET", "/v1/examples/{name}", "example", "the picture of an example", keeps=True),
    Route("POST", "/v1/predict", "predict", "everybody in a photo: the JSON of result.save('x.json')",
          (PICTURE,), SHARED, several=True),
    Route("POST", "/v1/video", "video", "everybody in a short video: the JSON of motion.save('x.json')",
          (VIDEO,), SHARED),
    Route("POST", "/v1/files/{format}", "files", "the file that result.save('x.FORMAT') writes; where everybody gets a "
          "file of their own, a ZIP archive of all", (PICTURE, VIDEO), SHARED),
    Route("POST", "/v1/reveal", "reveal", "one person's tokens, recovered step by step, and the pose of each step",
          (PICTURE,), REVEAL),
    Route("POST", "/v1/lab", "lab", "occlusion lab: how far a patch moves the estimate, by where it lies; with `at` "
          "the answer of predict for a picture with that patch", (PICTURE,), LAB),
    Route("POST", "/v1/jobs", "start_job", "a photo or a video as a job that goes on without a connection: its state, "
          "and its address in Location", (PICTURE, VIDEO), SHARED, status=202),
    Route("GET", "/v1/jobs/{job}", "job", "the job's state and its frames", errors=(503,)),
    Route("DELETE", "/v1/jobs/{job}", "cancel_job", "cancels the job, or forgets its result", status=204,
          errors=(503,)),
    Route("GET", "/v1/jobs/{job}/result", "job_result", "the answer of predict or video, or the job's error",
          errors=(409, 422, 503, 504)),
    Route("GET", "/v1/jobs/{job}/events", "job_events", "server-sent events: the job's state when it changes, until "
          "it ends, and frames of a video as they are estimated", errors=(503,)),
    Route("GET", "/livez", "livez", "whether the work goes on: 503 where a job is stuck", errors=(503,)),
    Route("GET", "/readyz", "readyz", "whether new requests are taken: 503 where not", errors=(503,)),
    Route("GET", "/metrics", "metrics", "Prometheus' text, with --metrics", errors=(404,)),
)  # fmt: skip
