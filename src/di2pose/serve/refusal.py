"""What a request may cost, and how one is refused."""

from dataclasses import dataclass

from di2pose.commands.predict_options import HEIGHTS_M

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
    """Of the work on a video, or of a lab."""
    heights_m: tuple[float, float] = HEIGHTS_M
    fields_of_view: tuple[float, float] = (1.0, 170.0)
    patches: tuple[float, float] = (0.05, 0.5)
    """Side of the lab's patch over the picture's shorter side."""

    def public(self) -> dict[str, float]:
        """What the page needs to know."""
        names = ("bytes", "pixels", "hypotheses", "steps", "people", "video_bytes", "video_seconds", "grid")
        return {name: getattr(self, name) for name in names}
