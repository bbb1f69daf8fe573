"""The service: requests in, answers out. The model works in the worker's turns; files are written in threads."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.staticfiles import StaticFiles

from di2pose import __version__
from di2pose.errors import InputError, MissingExtra
from di2pose.options import Options
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion, Result
from di2pose.serve import openapi
from di2pose.serve.decoding import Between, check_picture, check_video
from di2pose.serve.guard import HEADERS, Guard, error_response
from di2pose.serve.jobs import estimate_motion, lab_grid, reveal_steps, with_patch
from di2pose.serve.limits import CODES, ApiError, Limits
from di2pose.serve.media import Examples, formats, media_type
from di2pose.serve.schema import PICTURE, ROUTES, VIDEO, Route, read_fields
from di2pose.serve.uploads import UploadBudget, check_head, read_upload
from di2pose.serve.worker import PHOTO, Job, Worker
from di2pose.video.stream import VideoBytes

NAME = "pose"
"""Of the files: no name of a request is used."""
GONE = 499
"""Status where the client has gone; never sent."""
Upload = tuple[Any, dict[str, Any]]
"""The bytes of a request's picture, or the VideoBytes of its video, checked; and its options."""


class Service:
    """The endpoints of `schema.ROUTES`."""

    def __init__(self, model: Di2Pose, worker: Worker, limits: Limits) -> None:
        diffusion = getattr(model.config, "diffusion", None)
        self.diffusion_steps = 1 if diffusion is None else int(diffusion.steps)
        self.own_steps = int(model.config.sample_steps)
        self.limits = replace(limits, steps=min(limits.steps, self.diffusion_steps))
        self.model, self.worker = model, worker
        self.budget = UploadBudget(limits.held_bytes)
        self.shown_examples = Examples()

    @asynccontextmanager
    async def upload(self, request: Request, route: Route) -> AsyncIterator[Upload]:
        """The request's file and its options, in memory for as long as they are worked on."""
        most = self.limits.video_bytes if VIDEO in route.files else self.limits.bytes
        check_head(request, most)
        async with self.budget.reading(request, self.limits, most) as body:
            kind, content, given = await asyncio.to_thread(read_upload, request, body, route.files)
            if kind == PICTURE and len(body) > self.limits.bytes:
                raise ApiError(413, f"a request with a picture may have {self.limits.bytes} bytes, {len(body)} came")
            del body
            options = read_fields(given, route.fields_of(kind), self.limits)
            check = check_video if kind == VIDEO else check_picture
            found = await asyncio.to_thread(self.worker.checks.run, check, content, self.limits)
            yield VideoBytes(content, *found) if kind == VIDEO else content, options

    async def work(self, request: Request, kind: str, work_s: float, work: Callable[[Between], Any]) -> Any:
        """The answer of a job, which is abandoned where the client goes away."""
        client = "" if request.client is None else request.client.host
        job = Job(client, kind, self.limits.work_s, work_s)
        left = asyncio.ensure_future(_disconnected(request))
        left.add_done_callback(lambda _: self.worker.abandon(job))
        try:
            return await self.worker.run(job, work)
        finally:
            left.cancel()

    async def people(self, request: Request, upload: Upload, pictures: bool = False) -> Any:
        """Everybody in a photo or a video: Result or Motion; `pictures`: with thumbnails of a video's frames."""
        (content, options), limits = upload, self.limits
        if isinstance(content, VideoBytes):
            limits.check_price(options, self.own_steps, frames=content.frames)
            run = partial(estimate_motion, self.model, content, options, limits, pictures)
            return await self.work(request, VIDEO, limits.video_work_s, run)
        limits.check_price(options, self.own_steps)

        def predict(between: Between) -> Result:
            return self.model(self.worker.decoded(content), **options)

        return await self.work(request, PHOTO, limits.work_s, predict)

    async def predict(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as upload:
            return await written(await self.people(request, upload), "json", attached=False)

    video = predict

    async def files(self, request: Request, route: Route) -> Response:
        ending = request.path_params["format"]
        if ending not in formats():
            raise ApiError(404, f"no format '{ending[:40]}': choose from {', '.join(formats())}")
        async with self.upload(request, route) as upload:
            return await written(await self.people(request, upload, ending == "html"), ending, attached=True)

    async def reveal(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as (content, options):
            self.limits.check_price(options, self.own_steps)

            def run(between: Between) -> Any:
                return reveal_steps(self.model, self.worker.decoded(content), options, between)

            return JSONResponse(await self.work(request, "reveal", self.limits.work_s, run))

    async def lab(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as (content, options):
            patch, count, at = (options.pop(name) for name in ("patch", "grid", "at"))
            if at is not None and (patch, count) != (None, None):
                raise ApiError(400, "'at' names one patch, 'patch' and 'grid' many: give one or the other")
            count = count or 6
            self.limits.check_price(options, self.own_steps, places=0 if at is not None else count**2)

            def run(between: Between) -> Any:
                picture = self.worker.decoded(content)
                if at is not None:
                    return with_patch(self.model, picture, at, options)
                return lab_grid(self.model, picture, patch or 0.2, count, options, between)

            found = await self.work(request, "lab", self.limits.video_work_s, run)
            return await written(found, "json", attached=False) if at is not None else JSONResponse(found)

    async def health(self, request: Request, route: Route) -> Response:
        return JSONResponse({"status": "ok", "waiting": self.worker.waiting, "busy": self.worker.busy})

    async def about(self, request: Request, route: Route) -> Response:
        return JSONResponse(self.description)

    @cached_property
    def description(self) -> dict[str, Any]:
        names, own = H36M_17.joints, Options()
        return {
            "name": str(self.model.config.name),
            "kind": self.model.model.kind,
            "version": __version__,
            "joints": list(names),
            "bones": [[names[parent], names[child]] for child, parent in H36M_17.bones],
            "defaults": {"hypotheses": own.hypotheses, "steps": self.own_steps, "seed": own.seed,
                         "max_people": own.max_people},
            "limits": self.limits.public(),
            "formats": formats(),
            "diffusion_steps": self.diffusion_steps,
        }  # fmt: skip

    async def examples(self, request: Request, route: Route) -> Response:
        found = await asyncio.to_thread(self.shown_examples.all)
        return JSONResponse([{"name": each.name, "title": each.title} for each in found])

    async def example(self, request: Request, route: Route) -> Response:
        for each in await asyncio.to_thread(self.shown_examples.all):
            if each.name == request.path_params["name"]:
                return Response(each.jpeg, media_type="image/jpeg")
        raise ApiError(404, "no example of this name: GET /v1/examples lists them")


async def written(found: Result | Motion, ending: str, attached: bool) -> Response:
    """The file of `save`, or an archive of several; written in a thread, for it takes a while."""
    try:
        contents = await asyncio.to_thread(found.to_files, f"{NAME}.{ending}")
    except (InputError, MissingExtra) as error:
        raise ApiError(422, str(error)) from error
    name, media = f"{NAME}.{ending}", media_type(ending)
    if len(contents) == 1:
        (content,) = contents.values()
    else:
        name, media, archive = f"{NAME}_{ending}.zip", "application/zip", io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as pack:
            for each, part in contents.items():
                pack.writestr(each, part)
        content = archive.getvalue()
    headers = {"Content-Disposition": f'attachment; filename="{name}"'} if attached else {}
    return Response(content, media_type=media, headers=headers)


async def _disconnected(request: Request) -> None:
    """Returns when the client goes away. The body was read whole before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_http_error(request: Request, error: Any) -> Response:
    status = error.status_code if error.status_code in CODES else 400
    response = await error_response(request, ApiError(status, f"{error.detail}: GET /docs shows what there is"))
    response.headers.update(error.headers or {})  # Allow, of a 405
    return response


async def _on_gone(request: Request, error: Any) -> Response:
    return Response(status_code=GONE)


async def _on_bug(request: Request, error: Any) -> Response:
    return JSONResponse(ApiError(500, "the program failed: please report it").body, 500, HEADERS)


def build_app(service: Service, hosts: tuple[str, ...] = (), token: str | None = None) -> Starlette:
    """The ASGI application: the API, and the page with its files."""
    files = StaticFiles(packages=[("di2pose.serve", "static"), ("di2pose.output", "static")])

    async def answer(request: Request, route: Route) -> Response:
        response: Response = await getattr(service, route.endpoint)(request, route)
        return response

    async def page(request: Request) -> Response:
        return await files.get_response(request.path_params.get("name", "index.html"), request.scope)

    async def document(request: Request) -> Response:
        return JSONResponse(openapi.document(service.limits, formats()))

    async def docs(request: Request) -> Response:
        return Response(openapi.page(service.limits), media_type="text/html")

    app = Starlette(
        routes=[
            StarletteRoute("/", page), StarletteRoute("/static/{name}", page),
            StarletteRoute("/docs", docs), StarletteRoute("/openapi.json", document),
            *(StarletteRoute(each.path, partial(answer, route=each), methods=[each.method]) for each in ROUTES),
        ],
        middleware=[Middleware(Guard, hosts=hosts, token=token)],
        exception_handlers={
            ApiError: error_response, HTTPException: _on_http_error, ClientDisconnect: _on_gone, Exception: _on_bug,
        },
    )  # fmt: skip
    app.router.redirect_slashes = False  # it would redirect to the name in the Host header
    return app
