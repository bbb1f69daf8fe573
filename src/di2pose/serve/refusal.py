"""What a request may cost, and how one is refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from di2pose.commands.predict_options import HEIGHTS_M
from di2pose.pipeline.pipeline import SPARE

CODES = {
    400: "bad_request",
    401: "unauthorised",
    403: "forbidden",
    404: "not_found",
    405: "method",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media",
    422: "unusable_picture",
    500: "internal",
    503: "busy",
    504: "timeout",
}
"""HTTP status -> the code in the answer."""
PIN_PRICE = 8
"""How many times as much a step costs where joints are pinned; measured: 5 to 7."""


class Refusal(Exception):
    """Why a request is not answered: what was expected, what came, what to do."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after_s = status, message, retry_after_s

    def __reduce__(self) -> tuple[type["Refusal"], tuple[int, str, float | None]]:
        return Refusal, (self.status, self.message, self.retry_after_s)

    def bare(self) -> "Refusal":
        """The same, without the frames that it went through: they would keep the picture in memory."""
        return Refusal(self.status, self.message, self.retry_after_s)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(max(1, round(self.retry_after_s)))}

    @property
    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": CODES[self.status], "message": self.message}}


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and what all of them may hold."""

    bytes: int = 25_000_000
    """Of a request with a picture; base64 needs a third more than the picture."""
    pixels: int = 50_000_000
    """Of a picture, or of a frame of a video: known from the header, before anything is unpacked."""
    hypotheses: int = 64
    steps: int = 100
    """Or the model's own, where it has fewer."""
    people: int = 16
    price: int = 10_000
    """Of a picture: people (boxes, or max_people + SPARE candidates of the detector) x hypotheses x steps, times
    PIN_PRICE with pins; in the lab, places of the patch are counted instead of people. About 3 ms of CPU time each."""
    video_price: int = 500_000
    """Of a video: frames x people x hypotheses x steps."""
    regions: int = 32
    """Boxes of `occluded`."""
    video_bytes: int = 64_000_000
    video_seconds: float = 15.0
    video_rate: float = 60.0
    """Frames a second, on average."""
    grid: int = 12
    """Placements a side in the occlusion lab."""
    held_bytes: int = 512_000_000
    """Of all requests that are being read, wait or are worked on."""
    upload_s: float = 30.0
    """From the first to the last byte of a request."""
    decode_s: float = 20.0
    """Of a picture, a frame of a video, or the check of either before it is queued."""
    work_s: float = 120.0
    """In the queue; and again, of the work itself."""
    video_work_s: float = 900.0
    """Of the work on a video, or of a lab; turns of other requests in between do not count."""
    heights_m: tuple[float, float] = HEIGHTS_M
    fields_of_view: tuple[float, float] = (1.0, 170.0)
    patches: tuple[float, float] = (0.05, 0.5)
    """Side of the lab's patch over the picture's shorter side."""

    def public(self) -> dict[str, float]:
        """What the page needs to know."""
        names = ("bytes", "pixels", "hypotheses", "steps", "people", "price", "video_bytes", "video_seconds",
                 "video_price", "grid")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def check_price(
        self, options: Mapping[str, Any], own_steps: int, places: int = 0, frames: int | None = None
    ) -> int:
        """The price of a request; a Refusal where it is above the limit. `own_steps`: the model's, where the request
        names none; `places`: of the lab's patch; `frames`: of a video."""
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
        price, most = math.prod(factors.values()), self.price if frames is None else self.video_price
        if price > most:
            asked = " x ".join(map(str, factors.values()))
            advice = "ask for fewer hypotheses, steps or people"
            raise Refusal(413, f"{' x '.join(factors)} may be {most} at most, {asked} = {price} came: {advice}")
        return price
