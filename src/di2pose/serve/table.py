"""The routes: one table, by which the service answers and by which /openapi.json describes it."""

from dataclasses import dataclass

from di2pose.serve.fields import LAB, PICTURE, REVEAL, SHARED, VIDEO


@dataclass(frozen=True)
class Entry:
    """One route. `endpoint` names the method of `app.Service` that answers."""

    method: str
    path: str
    endpoint: str
    text: str
    answer: str = "application/json"
    """Media type."""
    files: tuple[str, ...] = ()
    """Fields one of which must hold the file."""
    fields: tuple[str, ...] = ()
    listed: bool = True
    """Whether it is part of the API, or only of the page."""


ROUTES = (
    Entry("GET", "/", "page", "the page", "text/html", listed=False),
    Entry("GET", "/static/{name}", "static", "a file of the page", "*/*", listed=False),
    Entry("GET", "/docs", "docs", "this API to read", "text/html", listed=False),
    Entry("GET", "/openapi.json", "openapi", "this API", listed=False),
    Entry("GET", "/v1/health", "health", "whether it works, and how many requests wait"),
    Entry("GET", "/v1/model", "about", "the model: joints, bones, defaults, limits, formats"),
    Entry("GET", "/v1/examples", "examples", "example people: names and titles"),
    Entry("GET", "/v1/examples/{name}", "example", "the picture of an example", "image/jpeg"),
    Entry("POST", "/v1/predict", "predict", "everybody in a photo: the JSON of result.save('x.json')",
          files=(PICTURE,), fields=SHARED),
    Entry("POST", "/v1/video", "video", "everybody in a short video: the JSON of motion.save('x.json')",
          files=(VIDEO,), fields=SHARED),
    Entry("POST", "/v1/files/{format}", "files", "the file that result.save('x.FORMAT') writes; where everybody gets a "
          "file of their own, a ZIP archive of all", "*/*", (PICTURE, VIDEO), SHARED),
    Entry("POST", "/v1/reveal", "reveal", "one person's tokens, recovered step by step, and the pose of each step",
          files=(PICTURE,), fields=REVEAL),
    Entry("POST", "/v1/lab", "lab", "occlusion lab: how far a patch moves the estimate, by where it lies; with `at` "
          "the answer of predict for a picture with that patch", files=(PICTURE,), fields=LAB),
)  # fmt: skip
