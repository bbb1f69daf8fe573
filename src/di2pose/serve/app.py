"""The service: requests in, answers out. Predictions run in the worker; files are written in threads."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
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

from di2pose import __version__
from di2pose.errors import InputError, MissingExtra
from di2pose.options import Options
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion, Result
from di2pose.serve import openapi
from di2pose.serve.decoding import check_picture, check_video
from di2pose.serve.guard import HEADERS, Guard, error_response
from di2pose.serve.jobs import estimate_motion, lab_grid, reveal_steps, with_patch
from di2pose.serve.limits import CODES, ApiError, Limits
from di2pose.serve.media import Examples, formats, media_type, static_files
from di2pose.serve.schema import PICTURE, ROUTES, VIDEO, Route, read_fields
from di2pose.serve.uploads import Upload, UploadBudget, check_head, read_upload
from di2pose.serve.worker import ExclusiveJob, Job, PhotoJob, Run, Worker
from di2pose.video.stream import VideoBytes

NAME = "pose"
"""Of the files: no name of a request is used."""
GONE = 499
"""Status where the client has gone; never sent."""
LEAST_S = 0.05
"""Shortest wait between two checks of a job's clock."""


class Service:
    """The endpoints of `schema.ROUTES`."""

    def __init__(self, model: Di2Pose, worker: Worker, limits: Limits) -> None:
        diffusion = getattr(model.config, "diffusion", None)
        self.diffusion_steps = 1 if diffusion is None else int(diffusion.steps)
        self.own_steps = int(model.config.sample_steps)
        self.limits = replace(limits, steps=min(limits.steps, self.diffusion_steps))
        self.model, self.worker = model, worker
        self.budget = UploadBudget(limits.held_bytes)
        self.static_files = static_files()
        self.shown_examples = Examples()

    @asynccontextmanager
    async def upload(self, request: Request, route: Route) -> AsyncIterator[tuple[Upload, dict[str, Any]]]:
        """The request's file and its options, in memory for as long as they are worked on."""
        most = self.limits.video_bytes if VIDEO in route.files else self.limits.bytes
        check_head(request, most)
        async with self.budget.reading(request, self.limits, most) as body:
            upload = await asyncio.to_thread(read_upload, request, body, route.files)
            if upload.kind == PICTURE and len(body) > self.limits.bytes:
                raise ApiError(413, f"a request with a picture may have {self.limits.bytes} bytes, {len(body)} came")
            del body
            yield upload, read_fields(upload.fields, route.fields_of(upload.kind), self.limits)

    async def checked(self, upload: Upload) -> Any:
        """Result of `check_picture` or `check_video`."""
        check = check_video if upload.kind == VIDEO else check_picture
        return await asyncio.to_thread(self.worker.checks.run, check, upload.content, self.limits)

    async def finish(self, request: Request, job: Job) -> Any:
        """The worker's answer; the job is abandoned where the client goes away or the time is over."""
        answer = asyncio.wrap_future(self.worker.submit(job))
        left = asyncio.ensure_future(_disconnected(request))
        try:
            while job.left_s > 0:  # it grows when the work begins, and stands still during the turns of others
                within = max(job.left_s, LEAST_S)
                await asyncio.wait({answer, left}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    if isinstance(answer.result(), ApiError):
                        raise answer.result().bare()
                    return answer.result()
                if left.done():
                    raise ClientDisconnect
            raise job.late()
        finally:
            self.worker.abandon(job)
            answer.cancel()
            left.cancel()

    async def run_exclusive(self, request: Request, kind: str, work_s: float, run: Run) -> Any:
        return await self.finish(request, ExclusiveJob(self.limits.work_s, work_s, run, client_of(request), kind))

    async def people(self, request: Request, upload: Upload, options: dict[str, Any], pictures: bool = False) -> Any:
        """Everybody in a photo or a video: Result or Motion; `pictures`: with thumbnails of a video's frames."""
        limits = self.limits
        if upload.kind == VIDEO:
            container, frames = await self.checked(upload)
            source = VideoBytes(upload.content, container, frames)
            limits.check_price(options, self.own_steps, frames=frames)

            def run(model: Di2Pose, between: Any) -> Motion:
                return estimate_motion(model, source, options, limits, between, pictures)

            return await self.run_exclusive(request, "video", limits.video_work_s, run)
        price = limits.check_price(options, self.own_steps)
        pixels = await self.checked(upload)
        photo = PhotoJob(limits.work_s, upload.content, pixels, options, price, client_of(request))
        return await self.finish(request, photo)

    async def predict(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as (upload, options):
            return await written(await self.people(request, upload, options), "json", attached=False)

    video = predict

    async def files(self, request: Request, route: Route) -> Response:
        ending = request.path_params["format"]
        if ending not in formats():
            raise ApiError(404, f"no format '{ending[:40]}': choose from {', '.join(formats())}")
        async with self.upload(request, route) as (upload, options):
            found = await self.people(request, upload, options, ending == "html")
            return await written(found, ending, attached=True)

    async def reveal(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as (upload, options):
            self.limits.check_price(options, self.own_steps)
            await self.checked(upload)

            def run(model: Di2Pose, between: Any) -> Any:
                return reveal_steps(model, self.worker.decoded(upload.content), options, between)

            return JSONResponse(await self.run_exclusive(request, "reveal", self.limits.work_s, run))

    async def lab(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as (upload, options):
            await self.checked(upload)
            patch, count, at = (options.pop(name) for name in ("patch", "grid", "at"))
            if at is not None and (patch, count) != (None, None):
                raise ApiError(400, "'at' names one patch, 'patch' and 'grid' many: give one or the other")
            count = count or 6
            self.limits.check_price(options, self.own_steps, places=0 if at is not None else count**2)

            def run(model: Di2Pose, between: Any) -> Any:
                picture = self.worker.decoded(upload.content)
                if at is not None:
                    return with_patch(model, picture, at, options)
                return lab_grid(model, picture, patch or 0.2, count, options, between)

            found = await self.run_exclusive(request, "lab", self.limits.video_work_s, run)
            return await written(found, "json", attached=False) if at is not None else JSONResponse(found)

    async def health(self, request: Request, route: Route) -> Response:
        return JSONResponse({"status": "ok", "waiting": self.worker.waiting, "busy": self.worker.busy})

    async def about(self, request: Request, route: Route) -> Response:
        return JSONResponse(self.description)

    @cached_property
    def description(self) -> dict[str, Any]:
        names, own = H36M_17.joints, Options()
        defaults = {"hypotheses": own.hypotheses, "steps": self.own_steps, "seed": own.seed}
        return {
            "name": str(self.model.config.name),
            "kind": self.model.model.kind,
            "version": __version__,
            "joints": list(names),
            "bones": [[names[parent], names[child]] for child, parent in H36M_17.bones],
            "defaults": defaults | {"max_people": own.max_people},
            "limits": self.limits.public(),
            "formats": formats(),
            "diffusion_steps": self.diffusion_steps,
        }

    async def examples(self, request: Request, route: Route) -> Response:
        found = await asyncio.to_thread(self.shown_examples.all)
        return JSONResponse([{"name": each.name, "title": each.title} for each in found.values()])

    async def example(self, request: Request, route: Route) -> Response:
        found = (await asyncio.to_thread(self.shown_examples.all)).get(request.path_params["name"])
        if found is None:
            raise ApiError(404, "no example of this name: GET /v1/examples lists them")
        return Response(found.jpeg, media_type="image/jpeg")

    async def page(self, request: Request, route: Route) -> Response:
        return await self.static(request, route)

    async def static(self, request: Request, route: Route) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self.static_files:
            raise ApiError(404, "no such file")
        content, media = self.static_files[name]
        return Response(content, media_type=media, headers={"Cache-Control": "no-cache"})

    async def openapi(self, request: Request, route: Route) -> Response:
        return JSONResponse(openapi.document(self.limits, formats()))

    async def docs(self, request: Request, route: Route) -> Response:
        return Response(openapi.page(self.limits), media_type="text/html")


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


def client_of(request: Request) -> str:
    """The address that the request came from."""
    return "" if request.client is None else request.client.host


async def _disconnected(request: Request) -> None:
    """Returns when the client goes away. The body was read whole before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_api_error(request: Request, error: Any) -> Response:
    return await error_response(request, error)


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
    """The ASGI application; its caller starts and ends the worker."""

    async def answer(request: Request, route: Route) -> Response:
        response: Response = await getattr(service, route.endpoint)(request, route)
        return response

    app = Starlette(
        routes=[StarletteRoute(each.path, partial(answer, route=each), methods=[each.method]) for each in ROUTES],
        middleware=[Middleware(Guard, hosts=hosts, token=token)],
        exception_handlers={
            ApiError: _on_api_error, HTTPException: _on_http_error, ClientDisconnect: _on_gone, Exception: _on_bug,
        },
    )  # fmt: skip
    app.router.redirect_slashes = False  # it would redirect to the name in the Host header
    return app
