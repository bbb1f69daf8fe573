"""The service: requests in, answers out. The model's work is done by the worker, files are written in threads."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from di2pose import __version__
from di2pose.errors import InputError, MissingExtra
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion, Result
from di2pose.serve import openapi
from di2pose.serve.body import Held, Upload, check_head, read_upload
from di2pose.serve.examples import Examples
from di2pose.serve.fields import PICTURE, VIDEO, field_table, read_fields
from di2pose.serve.guard import HEADERS, Guard, refused
from di2pose.serve.jobs import estimate_motion, lab_grid, reveal_steps, with_patch
from di2pose.serve.media import formats, media_type, static_files
from di2pose.serve.pictures import check_picture, check_video
from di2pose.serve.refusal import CODES, Limits, Refusal
from di2pose.serve.table import ROUTES, Entry
from di2pose.serve.worker import AloneJob, Job, PhotoJob, Worker
from di2pose.video.stream import VideoBytes

DEFAULTS = {"hypotheses": 8, "steps": None, "seed": 0, "max_people": 8}
NAME = "pose"
"""Of the files: nothing of a name that somebody sent is used."""
GONE = 499
"""Nobody hears this status: the client went away."""
LEAST_S = 0.05
"""Between two looks at a job's clock."""


class Service:
    """Everything behind the routes of `table.ROUTES`."""

    def __init__(self, model: Di2Pose, worker: Worker, limits: Limits) -> None:
        diffusion = getattr(model.config, "diffusion", None)
        self.diffusion_steps = 1 if diffusion is None else int(diffusion.steps)
        self.own_steps = int(model.config.sample_steps)
        limits = replace(limits, steps=min(limits.steps, self.diffusion_steps))
        self.model, self.worker, self.limits = model, worker, limits
        self.held = Held(limits.held_bytes)
        self.fields = field_table(limits)
        self.static_files = static_files()
        self.shown_examples = Examples()

    @asynccontextmanager
    async def upload(self, request: Request, entry: Entry) -> AsyncIterator[tuple[Upload, dict[str, Any]]]:
        """The request's file and its options, in memory for as long as they are worked on."""
        most = self.limits.video_bytes if VIDEO in entry.files else self.limits.bytes
        check_head(request, most)
        async with self.held.reading(request, self.limits, most) as body:
            upload = await asyncio.to_thread(read_upload, request, body, entry.files)
            if upload.kind == PICTURE and len(body) > self.limits.bytes:
                raise Refusal(413, f"a request with a picture may have {self.limits.bytes} bytes, {len(body)} came")
            del body
            known = {name: self.fields[name] for name in entry.fields}
            yield upload, DEFAULTS | read_fields(upload.fields, known, video=upload.kind == VIDEO)

    async def finish(self, request: Request, job: Job) -> Any:
        """The answer of the worker; the job is given up where the client goes away or the time is over."""
        answer = asyncio.wrap_future(self.worker.submit(job))
        left = asyncio.ensure_future(_left(request))
        try:
            while job.left_s > 0:  # it grows when the work begins, and stands still during the turns of others
                within = max(job.left_s, LEAST_S)
                await asyncio.wait({answer, left}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    if isinstance(answer.result(), Refusal):
                        raise answer.result().bare()
                    return answer.result()
                if left.done():
                    raise ClientDisconnect
            raise job.late()
        finally:
            self.worker.abandon(job)
            answer.cancel()
            left.cancel()

    async def looked_at(
        self, request: Request, upload: Upload, options: dict[str, Any], pictures: bool = False
    ) -> Result | Motion:
        """Everybody in a photo or a video; `pictures`: its frames are to be shown."""
        if upload.kind == VIDEO:
            limits = self.limits
            container, frames = await asyncio.to_thread(self.worker.checks.run, check_video, upload.content, limits)
            source = VideoBytes(upload.content, container, frames)
            limits.check_price(options, self.own_steps, frames=frames)

            def run(model: Di2Pose, between: Any) -> Motion:
                return estimate_motion(model, source, options, limits, between, pictures)

            video = AloneJob(limits.work_s, limits.video_work_s, run, client_of(request), "video")
            found = await self.finish(request, video)
        else:
            price = self.limits.check_price(options, self.own_steps)
            pixels = await asyncio.to_thread(self.worker.checks.run, check_picture, upload.content, self.limits)
            photo = PhotoJob(self.limits.work_s, upload.content, pixels, options, price, client_of(request))
            found = await self.finish(request, photo)
        assert isinstance(found, Result | Motion)
        return found

    async def predict(self, request: Request, entry: Entry) -> Response:
        async with self.upload(request, entry) as (upload, options):
            return await written(await self.looked_at(request, upload, options), "json", attached=False)

    video = predict

    async def files(self, request: Request, entry: Entry) -> Response:
        ending = request.path_params["format"]
        if ending not in formats():
            raise Refusal(404, f"no format '{ending[:40]}': choose from {', '.join(formats())}")
        async with self.upload(request, entry) as (upload, options):
            found = await self.looked_at(request, upload, options, ending == "html")
            return await written(found, ending, attached=True)

    async def reveal(self, request: Request, entry: Entry) -> Response:
        async with self.upload(request, entry) as (upload, options):
            self.limits.check_price(options, self.own_steps)
            await asyncio.to_thread(self.worker.checks.run, check_picture, upload.content, self.limits)
            work_s = self.limits.work_s

            def run(model: Di2Pose, between: Any) -> Any:
                return reveal_steps(model, self.worker.decoded(upload.content), options, between)

            return JSONResponse(await self.finish(request, AloneJob(work_s, work_s, run, client_of(request), "reveal")))

    async def lab(self, request: Request, entry: Entry) -> Response:
        async with self.upload(request, entry) as (upload, options):
            await asyncio.to_thread(self.worker.checks.run, check_picture, upload.content, self.limits)
            patch, count, at = (options.pop(name, None) for name in ("patch", "grid", "at"))
            if at is not None and (patch, count) != (None, None):
                raise Refusal(400, "'at' names one patch, 'patch' and 'grid' many: give one or the other")
            count = count or 6
            self.limits.check_price(options, self.own_steps, places=0 if at is not None else count**2)

            def run(model: Di2Pose, between: Any) -> Any:
                if at is not None:
                    return with_patch(model, self.worker.decoded(upload.content), at, options)
                picture = self.worker.decoded(upload.content)
                return lab_grid(model, picture, patch or 0.2, count, options, between)

            job = AloneJob(self.limits.work_s, self.limits.video_work_s, run, client_of(request), "lab")
            found = await self.finish(request, job)
            return await written(found, "json", attached=False) if at is not None else JSONResponse(found)

    async def health(self, request: Request, entry: Entry) -> Response:
        return JSONResponse({"status": "ok", "waiting": self.worker.waiting, "busy": self.worker.busy})

    async def about(self, request: Request, entry: Entry) -> Response:
        return JSONResponse(self.description)

    @cached_property
    def description(self) -> dict[str, Any]:
        config = self.model.config
        names = H36M_17.joints
        return {
            "name": str(config.name),
            "kind": self.model.model.kind,
            "version": __version__,
            "joints": list(names),
            "bones": [[names[parent], names[child]] for child, parent in H36M_17.bones],
            "defaults": DEFAULTS | {"steps": config.sample_steps},
            "limits": self.limits.public(),
            "formats": formats(),
            "diffusion_steps": self.diffusion_steps,
        }

    async def examples(self, request: Request, entry: Entry) -> Response:
        found = await asyncio.to_thread(self.shown_examples.all)
        return JSONResponse([{"name": each.name, "title": each.title} for each in found.values()])

    async def example(self, request: Request, entry: Entry) -> Response:
        found = (await asyncio.to_thread(self.shown_examples.all)).get(request.path_params["name"])
        if found is None:
            raise Refusal(404, "no example of this name: GET /v1/examples lists them")
        return Response(found.jpeg, media_type="image/jpeg")

    async def page(self, request: Request, entry: Entry) -> Response:
        return self._static("index.html")

    async def static(self, request: Request, entry: Entry) -> Response:
        return self._static(request.path_params["name"])

    def _static(self, name: str) -> Response:
        if name not in self.static_files:
            raise Refusal(404, "no such file")
        content, media = self.static_files[name]
        return Response(content, media_type=media, headers={"Cache-Control": "no-cache"})

    async def openapi(self, request: Request, entry: Entry) -> Response:
        return JSONResponse(openapi.document(self.fields, formats()))

    async def docs(self, request: Request, entry: Entry) -> Response:
        return Response(openapi.page(self.fields, self.limits), media_type="text/html")


async def written(found: Result | Motion, ending: str, attached: bool) -> Response:
    """What `save` would write, of several files an archive; written in a thread, for it takes a while."""
    try:
        contents = await asyncio.to_thread(found.to_files, f"{NAME}.{ending}")
    except (InputError, MissingExtra) as error:
        raise Refusal(422, str(error)) from error
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


async def _left(request: Request) -> None:
    """Returns when the client goes away. The body was read whole before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def build_app(service: Service, hosts: tuple[str, ...] = (), token: str | None = None) -> Starlette:
    """The ASGI application; the worker is started and ended by whoever runs it."""

    def route(entry: Entry) -> Route:
        answer = getattr(service, entry.endpoint)

        async def endpoint(request: Request) -> Response:
            response: Response = await answer(request, entry)
            return response

        return Route(entry.path, endpoint, methods=[entry.method])

    async def on_refusal(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return await refused(request, error)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = error.status_code if error.status_code in CODES else 400
        response = await refused(request, Refusal(status, f"{error.detail}: GET /docs shows what there is"))
        response.headers.update(error.headers or {})  # Allow, of a 405
        return response

    async def on_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=GONE)

    async def on_bug(request: Request, error: Exception) -> Response:
        return JSONResponse(Refusal(500, "the program failed: please report it").body, 500, HEADERS)

    app = Starlette(
        routes=[route(entry) for entry in ROUTES],
        middleware=[Middleware(Guard, hosts=hosts, token=token)],
        exception_handlers={
            Refusal: on_refusal, HTTPException: on_http, ClientDisconnect: on_gone, Exception: on_bug,
        },
    )  # fmt: skip
    app.router.redirect_slashes = False  # it would send people to whatever the Host header names
    return app
