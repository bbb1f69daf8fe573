"""The service: requests in, answers out. The model works in the worker's turns; files are written in threads."""

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from di2pose import __version__
from di2pose.errors import InputError, MissingExtra
from di2pose.options import Options
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion, Result
from di2pose.serve import metrics, openapi
from di2pose.serve.access import GONE, Access
from di2pose.serve.background import JOB_ID, BackgroundJob, BackgroundJobs, error_record
from di2pose.serve.compression import Compress, revalidated
from di2pose.serve.decoding import Between, check_picture, check_video
from di2pose.serve.guard import Guard, error_response
from di2pose.serve.jobs import estimate_motion, lab_grid, patched, reveal_steps, with_thumbnails
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.media import Examples, formats, media_type
from di2pose.serve.operators import OperatorOptions
from di2pose.serve.schema import PICTURE, ROUTES, SEVERAL, VIDEO, Route, check_price, read_fields
from di2pose.serve.siblings import Siblings
from di2pose.serve.store import ResultStore, key_of
from di2pose.serve.uploads import UploadBudget, check_head, read_upload
from di2pose.serve.worker import PHOTO, Job, Worker
from di2pose.video.stream import VideoBytes

NAME = "pose"
"""Of the files: no name of a request is used."""
PICTURED = ("html", "png", "jpg")
"""Formats that show the picture."""
Upload = tuple[Any, dict[str, Any]]
"""The bytes of a request's picture, or the VideoBytes of its video, checked; and its options. Several pictures are a
list, and are checked one after the other."""
Asker = Request | BackgroundJob


class Service:
    """The endpoints of `schema.ROUTES`."""

    def __init__(
        self, model: Di2Pose, worker: Worker, limits: Limits, operator: OperatorOptions = OperatorOptions(),  # noqa: B008
        siblings: Siblings = Siblings(),  # noqa: B008
    ) -> None:  # fmt: skip
        diffusion = getattr(model.config, "diffusion", None)
        self.diffusion_steps = 1 if diffusion is None else int(diffusion.steps)
        self.own_steps = int(model.config.sample_steps)
        self.limits = replace(limits, steps=min(limits.steps, self.diffusion_steps))
        self.model, self.worker = model, worker
        self.budget = UploadBudget(limits.held_bytes)
        self.shown_examples = Examples()
        self.operator, self.siblings = operator, siblings
        self.jobs = BackgroundJobs(limits, siblings.index)
        self.results = ResultStore(limits)

    @asynccontextmanager
    async def upload(self, request: Request, route: Route) -> AsyncIterator[Upload]:
        """The request's file and its options, in memory for as long as they are worked on."""
        most = self.limits.video_bytes if VIDEO in route.files else self.limits.bytes
        check_head(request, most)
        async with self.budget.reading(request, self.limits.upload_s, most) as body:
            most_files = self.limits.pictures if route.several else 1
            kind, content, given = await asyncio.to_thread(read_upload, request, body, route.files, most_files)
            if kind == PICTURE and len(body) > self.limits.bytes:
                raise ApiError(413, f"a request with a picture may have {self.limits.bytes} bytes, {len(body)} came")
            del body
            if isinstance(content, list):
                yield content, read_fields(given, SEVERAL, self.limits)
                return
            options = read_fields(given, route.fields_of(kind), self.limits)
            check = check_video if kind == VIDEO else check_picture
            found = await asyncio.to_thread(self.worker.checks.run, check, content, self.limits)
            yield VideoBytes(content, *found) if kind == VIDEO else content, options

    async def work(self, asker: Asker, kind: str, work: Callable[[Between], Any], frames: int | None = 1) -> Any:
        """The answer of a job, which is abandoned where the client goes away."""
        work_s = self.limits.video_work_s if kind in (VIDEO, "lab") else self.limits.work_s
        if isinstance(asker, BackgroundJob):
            job = Job(asker.client, kind, self.limits.video_work_s, work_s)
            left: asyncio.Task[Any] = asyncio.create_task(asker.gone.wait())
            work = asker.counting(work, frames or 0)
        else:
            job = Job(client_of(asker), kind, self.limits.work_s, work_s)
            left = asyncio.create_task(_disconnected(asker))
        left.add_done_callback(lambda _: self.worker.abandon(job))
        try:
            return await self.worker.run(job, work)
        finally:
            left.cancel()

    async def people(self, asker: Asker, upload: Upload) -> Any:
        """Everybody in a photo or a video: Result or Motion."""
        content, options = upload
        if isinstance(content, VideoBytes):
            check_price(self.limits, options, self.own_steps, frames=content.frames)
            coming = asker.show if isinstance(asker, BackgroundJob) else lambda _: None
            run = partial(estimate_motion, self.model, content, options, self.limits, coming)
            found = await self.work(asker, VIDEO, run, content.frames)
        else:
            check_price(self.limits, options, self.own_steps)
            found = await self.work(asker, PHOTO, lambda _: self.model(self.worker.decoded(content), **options))
        await self.results.keep(await key_of(client_of(asker), *upload), found)
        return found

    async def pictured(self, asker: Asker, found: Result | Motion, content: Any) -> Any:
        """The same with its picture, or with small ones of a video's frames."""
        if isinstance(found, Motion):
            return await self.work(asker, VIDEO, partial(with_thumbnails, found, content, self.limits))
        return await self.work(asker, PHOTO, lambda _: replace(found, picture=self.worker.decoded(content)))

    async def several(self, request: Request, upload: Upload) -> Response:
        """A list of results, or errors, of several pictures in their order."""
        contents, options = upload
        check_price(self.limits, options, self.own_steps, pictures=len(contents))

        def one(content: bytes, between: Between) -> Result | ApiError:
            between()
            try:
                self.worker.checks.run(check_picture, content, self.limits)
                picture = self.worker.decoded(content)
            except ApiError as error:
                return ApiError(*error.args)
            try:
                return self.model(picture, **options)
            except InputError as error:
                return ApiError(422, str(error))

        def run(between: Between) -> list[Result | ApiError]:
            return [one(content, between) for content in contents]

        found = await self.work(request, "photos", run)
        parts = [json.dumps(error_record(each)).encode() if isinstance(each, ApiError)
                 else (await written(each, "json", attached=False)).body for each in found]  # fmt: skip
        return Response(b"[" + b",".join(bytes(part).strip() for part in parts) + b"]", media_type="application/json")

    async def predict(self, request: Request, route: Route) -> Response:
        async with self.upload(request, route) as upload:
            if isinstance(upload[0], list):
                return await self.several(request, upload)
            return await written(await self.people(request, upload), "json", attached=False)

    video = predict

    async def files(self, request: Request, route: Route) -> Response:
        ending = request.path_params["format"]
        if ending not in formats():
            raise ApiError(404, f"no format '{ending[:40]}': choose from {', '.join(formats())}")
        async with self.upload(request, route) as upload:
            found = await self.results.get(await key_of(client_of(request), *upload))
            found = found or await self.people(request, upload)
            if ending in PICTURED:
                found = await self.pictured(request, found, upload[0])
            return await written(found, ending, attached=True)

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

    async def start_job(self, request: Request, route: Route) -> Response:
        stack = AsyncExitStack()

        async def run(job: BackgroundJob) -> bytes:
            async with stack:
                return bytes((await written(await self.people(job, upload), "json", attached=False)).body)

        try:
            upload = await stack.enter_async_context(self.upload(request, route))
            job = await self.jobs.start(client_of(request), run)
        except BaseException:
            await stack.aclose()
            raise
        return JSONResponse(job.report(), 202, {"Location": f"/v1/jobs/{job.id}"})

    async def job(self, request: Request, route: Route) -> Response:
        return JSONResponse(self.jobs.find(request.path_params["job"]).report())

    async def cancel_job(self, request: Request, route: Route) -> Response:
        self.jobs.forget(self.jobs.find(request.path_params["job"]))
        return Response(status_code=204)

    async def job_result(self, request: Request, route: Route) -> Response:
        found = self.jobs.result(self.jobs.find(request.path_params["job"]))
        return Response(found, media_type="application/json")

    async def job_events(self, request: Request, route: Route) -> Response:
        events = self.jobs.events(self.jobs.find(request.path_params["job"]), lambda: self.worker.ending)
        headers = {"X-Accel-Buffering": "no"}  # for nginx, which else sends them together
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    def report(self) -> dict[str, Any]:
        """The state and the metrics of this process."""
        worker, config = self.worker, self.model.config
        state = worker.state(self.siblings.index)
        gauges = {
            "queue_length": worker.waiting, "ready": state["ready"], "kept_jobs": len(self.jobs.jobs),
            "running_job_age_seconds": 0.0 if worker.running is None else worker.running.worked_s(),
            "held_bytes": self.budget.now, "resident_memory_bytes": metrics.resident_bytes(),
        }  # fmt: skip
        info = ("model_info", {"name": config.name, "kind": self.model.model.kind}, 1)
        own = [info, *((name, {}, value) for name, value in gauges.items())]
        return {"state": state, "samples": [*worker.metrics.samples(), *own]}

    async def livez(self, request: Request, route: Route) -> Response:
        return await self.states(all, "alive", "stuck")

    async def readyz(self, request: Request, route: Route) -> Response:
        return await self.states(any, "ready", "not_ready")

    async def states(self, good: Callable[[Iterable[bool]], bool], name: str, else_name: str) -> Response:
        states = [each["state"] for each in (await self.siblings.reports(self.report())).values()]
        found = good(each[name] for each in states)
        return JSONResponse({"status": name if found else else_name, "workers": states}, 200 if found else 503)

    async def metrics(self, request: Request, route: Route) -> Response:
        if not self.operator.metrics:
            raise ApiError(404, "there are no metrics: start the service with --metrics")
        samples = {index: each["samples"] for index, each in (await self.siblings.reports(self.report())).items()}
        return PlainTextResponse(metrics.prometheus_text(samples), media_type=metrics.CONTENT_TYPE)

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


def client_of(asker: Asker) -> str:
    """The client's address."""
    if isinstance(asker, BackgroundJob):
        return asker.client
    return "" if asker.client is None else asker.client.host


async def _on_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


async def _on_bug(request: Request, error: Exception) -> Response:
    return await error_response(request, ApiError(500, "the program failed: please report it"))


def build_app(service: Service, hosts: tuple[str, ...] = (), token: str | None = None) -> ASGIApp:
    """The ASGI application: the API, and the page with its files."""
    files = StaticFiles(packages=[("di2pose.serve", "static"), ("di2pose.output", "static")])

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        return revalidated(request, await files.get_response(name, request.scope))

    async def document(request: Request) -> Response:
        return revalidated(request, JSONResponse(openapi.document(service.limits, formats())))

    async def docs(request: Request) -> Response:
        return revalidated(request, HTMLResponse(openapi.page(service.limits)))

    pages = {"/": page, "/static/{name}": page, "/docs": docs, "/openapi.json": document}
    routes = [StarletteRoute(path, endpoint) for path, endpoint in pages.items()]
    for path in dict.fromkeys(each.path for each in ROUTES):
        methods = {each.method: each for each in ROUTES if each.path == path}
        routes.append(StarletteRoute(path, partial(_answer, service, methods), methods=list(methods)))
    handlers = {HTTPException: error_response, ClientDisconnect: _on_gone, Exception: _on_bug}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would redirect to the name in the Host header
    guard = Guard(app, hosts, token, service.operator.allow_origin)
    return Access(Compress(guard), routes, service.operator, service.worker.metrics, service.siblings.count)


async def _answer(service: Service, methods: dict[str, Route], request: Request) -> Response:
    """Of the route's endpoint; jobs are asked of the worker that has them. A request without a client's address comes
    from another worker: for a job of this one, or for its report."""
    route, name = methods["GET" if request.method == "HEAD" else request.method], request.path_params.get("job", "")
    if request.client is None and route.path == "/readyz":
        return JSONResponse(service.report())
    found = JOB_ID.fullmatch(name)
    if found and int(found[1]) in service.siblings.others and request.client is not None:
        return await service.siblings.ask(int(found[1]), route.method, route.path.replace("{job}", name))
    answer: Response = await getattr(service, route.endpoint)(request, route)
    return revalidated(request, answer) if route.keeps else answer
