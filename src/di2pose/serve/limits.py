"""Limits of a request, and the error that answers one beyond them. Decoding processes import this: it must be quick."""

from dataclasses import dataclass
from typing import Annotated

from starlette.exceptions import HTTPException
from tyro.conf import Suppress, arg

CODES = {
    400: "bad_request", 401: "unauthorised", 403: "forbidden", 404: "not_found", 405: "method", 408: "timeout",
    409: "not_finished", 413: "too_large", 415: "unsupported_media", 422: "unusable_picture", 500: "internal",
    503: "busy", 504: "timeout",
}  # fmt: skip
"""HTTP status -> the code in the answer."""


class ApiError(HTTPException):
    """The answer to a request that cannot be served: what was expected, what came, what to do."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        headers = {} if retry_after_s is None else {"Retry-After": str(max(1, round(retry_after_s)))}
        super().__init__(status, message, headers)


class TooDear(ApiError):
    """The price of a request is above the limit."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, and of all requests in memory; most are flags of `di2pose serve`."""

    bytes: Annotated[int, arg(name="max-bytes")] = 25_000_000
    """Of a request with a picture; base64 needs a third more than the picture."""
    pixels: Annotated[int, arg(name="max-pixels")] = 50_000_000
    """Of a picture, or of a frame of a video; read from the header, before decoding."""
    hypotheses: Annotated[int, arg(name="max-hypotheses")] = 64
    """Of one request."""
    people: Annotated[int, arg(name="max-people")] = 16
    """Of one request."""
    price: Annotated[int, arg(name="max-price")] = 10_000
    """Of a picture: people (boxes, or max_people + 4 candidates of the detector) x hypotheses x steps, 8 times as much
    with pins; in the lab, places of the patch instead of people. About 3 ms of CPU time each. docs/serve.md."""
    video_price: Annotated[int, arg(name="max-video-price")] = 500_000
    """Of a video: frames x people x hypotheses x steps."""
    video_bytes: Annotated[int, arg(name="max-video-bytes")] = 64_000_000
    """Of a request with a video."""
    video_seconds: Annotated[float, arg(name="max-video-seconds")] = 15.0
    """Of a video."""
    work_s: Annotated[float, arg(name="timeout")] = 120.0
    """Seconds that a request may wait, and again that it may be worked on."""
    upload_s: Annotated[float, arg(name="upload-timeout")] = 30.0
    """Seconds from the first to the last byte of a request."""
    pictures: Annotated[int, arg(name="max-pictures")] = 16
    """Of one request to /v1/predict; the price is the sum of theirs."""
    jobs: Annotated[int, arg(name="max-jobs")] = 64
    """That wait, run, or whose results are kept."""
    job_kept_s: Annotated[float, arg(name="job-timeout")] = 300.0
    """Seconds after which a job that its client does not ask for is cancelled, and its result forgotten."""
    jobs_a_client: Suppress[int] = 16
    jobs_bytes: Suppress[int] = 256_000_000
    """Of all kept results; the oldest are forgotten for new ones."""
    results: Suppress[int] = 64
    results_bytes: Suppress[int] = 64_000_000
    result_kept_s: Suppress[float] = 1800.0
    """Of the last results, whose files are written without computing them again."""
    steps: Suppress[int] = 100
    """Or the model's own, where it has fewer."""
    regions: Suppress[int] = 32
    """Boxes of `occluded`."""
    video_rate: Suppress[float] = 60.0
    """Frames a second, on average."""
    grid: Suppress[int] = 12
    """Placements a side in the occlusion lab."""
    held_bytes: Suppress[int] = 512_000_000
    """Of all requests that are read, wait or are worked on."""
    decode_s: Suppress[float] = 20.0
    """Of a picture, a frame of a video, or the check of either before it is queued."""
    video_work_s: Suppress[float] = 900.0
    """Of the work on a video or a lab, without the turns of other requests."""
