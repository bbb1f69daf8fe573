"""The service: requests in, answers out. The model works in the worker's turns; files are written in threads."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.staticfiles import StaticFiles

from di2pose import __version__
from di2pose.errors import InputError, MissingExtra
from di2pose.options import Options
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion, Result
from di2pose.serve import openapi
from di2pose.serve.decoding import Between, check_picture, check_video
from di2pose.serve.guard import Guard, error_response
from di2pose.serve.jobs import estimate_motion, lab_grid, patched, reveal_steps
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.media import Examples, formats, media_type
from di2pose.serve.schema import PICTURE, ROUTES, VIDEO, Route, check_price, read_fields
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
        async with self.budget.reading(request, self.limits.upload_s, most) as body:
            kind, content, given = await asyncio.to_thread(read_upload, request, body, route.files)
            if kind == PICTURE and len(body) > self.limits.bytes:
                raise ApiError(413, f"a request with a picture may have {self.limits.bytes} bytes, {len(body)} came")
            del body
            options = read_fields(given, route.fields_of(kind), self.limits)
            check = check_video if kind == VIDEO else check_picture
            found = await asyncio.to_thread(self.worker.checks.run, check, content, self.limits)
            yield VideoBytes(content, *found) if kind == VIDEO else content, options

    async def work(self, request: Request, kind: str, work: Callable[[Between], Any]) -> Any:
        """The answer of a job, which is abandoned where the client goes away."""
        client = "" if request.client is None else request.client.host
        work_s = self.limits.video_work_s if kind in (VIDEO, "lab") else self.limits.work_s
        job = Job(client, kind, self.limits.work_s, work_s)
        left = asyncio.ensure_future(_disconnected(request))
        left.add_done_callback(lambda _: self.worker.abandon(job))
        try:
            return await self.worker.run(job, work)
        finally:
            left.cancel()

    async def people(self, request: Request, upload: Upload, pictures: bool = False) -> Any:
        """Everybody in a photo or a video: Result or Motion; `pictures`: with thumbnails of a video's frames."""
        content, options = upload
        if isinstance(content, VideoBytes):
            check_price(self.limits, options, self.own_steps, frames=content.frames)
            run = partial(estimate_motion, self.model, content, options, self.limits, pictures)
            return await self.work(request, VIDEO, run)
        check_price(self.limits, options, self.own_steps)
        return await self.work(request, PHOTO, lambda _: self.model(self.worker.decoded(content), **options))

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
            check_price(self.limits, options, self.own_steps)

            def run(between: Between) -> Any:
                return reveal_steps(self.model, self.worker.decoded(content), options, between)

            return JSONResponse(await self.work(request, "reveal", run))

    async def lab(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as (content, options):
            patch, count, at = (options.pop(name) for name in ("patch", "grid", "at"))
            if at is not None and (patch, count) != (None, None):
                raise ApiError(400, "'at' names one patch, 'patch' and 'grid' many: give one or the other")
            count = count or 6
            check_price(self.limits, options, self.own_steps, places=0 if at is not None else count**2)

            def run(between: Between) -> Any:
                picture = self.worker.decoded(content)
                if at is not None:
                    return self.model(patched(picture, at, options["seed"]), **options)
                return lab_grid(self.model, picture, patch or 0.2, count, options, between)

            found = await self.work(request, "lab", run)
            return await written(found, "json", attached=False) if at is not None else JSONResponse(found)

    async def health(self, request: Request, route: Route) -> Response:
        return JSONResponse({"status": "ok", "waiting": self.worker.waiting, "busy": self.worker.busy})

    async def about(self, request: Request, route: Route) -> Response:
        skeleton, own = self.model.skeleton, Options()
        names = skeleton.joints
        return JSONResponse({
            "name": str(self.model.config.name),
            "kind": self.model.model.kind,
            "version": __version__,
            "joints": list(names),
            "bones": [[names[parent], names[child]] for child, parent in skeleton.bones],
            "defaults": {"hypotheses": own.hypotheses, "steps": self.own_steps, "seed": own.seed,
                         "max_people": own.max_people},
            "limits": asdict(self.limits),
            "formats": formats(),
            "diffusion_steps": self.diffusion_steps,
        })  # fmt: skip

    async def examples(self, request: Request, route: Route) -> Response:
        found = await asyncio.to_thread(self.shown_examples.all)
        return JSONResponse([{"name": name, "title": title} for name, (title, _) in found.items()])

    async def example(self, request: Request, route: Route) -> Response:
        found = await asyncio.to_thread(self.shown_examples.all)
        name = request.path_params["name"]
        if name not in found:
            raise ApiError(404, "no example of this name: GET /v1/examples lists them")
        return Response(found[name][1], media_type="image/jpeg")


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


async def _on_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


async def _on_bug(request: Request, error: Exception) -> Response:
    return await error_response(request, ApiError(500, "the program failed: please report it"))


def build_app(service: Service, hosts: tuple[str, ...] = (), token: str | None = None) -> Guard:
    """The ASGI application: the API, and the page with its files."""
    files = StaticFiles(packages=[("di2pose.serve", "static"), ("di2pose.output", "static")])

    async def page(request: Request) -> Response:
        return await files.get_response(request.path_params.get("name", "index.html"), request.scope)

    async def document(request: Request) -> Response:
        return JSONResponse(openapi.document(service.limits, formats()))

    async def docs(request: Request) -> Response:
        return HTMLResponse(openapi.page(service.limits))

    pages = {"/": page, "/static/{name}": page, "/docs": docs, "/openapi.json": document}
    routes = [StarletteRoute(path, endpoint) for path, endpoint in pages.items()]
    for each in ROUTES:
        endpoint = partial(getattr(service, each.endpoint), route=each)
        routes.append(StarletteRoute(each.path, endpoint, methods=[each.method]))
    handlers = {HTTPException: error_response, ClientDisconnect: _on_gone, Exception: _on_bug}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would redirect to the name in the Host header
    return Guard(app, hosts, token)
