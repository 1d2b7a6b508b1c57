"""Answers for programs: HTTP, version 1, at ``api/v1/``.

Whatever a page shows or ``pk.show`` returns, a program asks for here, by the same declarations and
with the same limits. It may name only models and corpora that the menus offer, and no paths.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlencode

from cachetools import LRUCache, TTLCache
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from streamlit import config

from poskernel_core import analyses
from poskernel_core.api import looked_at
from poskernel_core.common.addresses import THIS_MACHINE
from poskernel_core.common.errors import ComputeDisabled, PosKernelError
from poskernel_core.common.heads import head_name
from poskernel_core.common.outside import from_outside
from poskernel_core.common.result import Result
from poskernel_core.common.settings import settings
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.inventory import inventory
from poskernel_core.engine.job import ENDS, Job
from poskernel_core.engine.plan import Plan
from poskernel_core.engine.provenance import stored
from poskernel_core.export.files import stage_json
from poskernel_core.export.schema import described, listed
from serving.asked import (
    Asked,
    First,
    Wanted,
    body_of,
    first,
    number,
    part_of,
    planned,
    queries_of,
    read,
    typed,
)
from serving.callers import Caller, Callers, Ticket
from serving.doors import doors
from serving.forms import Encoded, Form, accepted, tag_of
from serving.problems import Problem, answered, problem_of, without_paths

MAX_WAIT = 30
LISTEN_SECONDS = 600.0
"""Seconds after which a stream of events ends."""

BREATH = 15.0
"""Seconds after which a silent stream of events says that it is there."""

PACE = 0.2
"""Seconds between two events of progress."""

FRESH = 300
"""Seconds for which files of models and texts are taken to be unchanged, as by the pages."""

KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}")
STORED_ONLY = (
    "This server answers programs from what it has stored (POSKERNEL_API=stored), and this is not "
    "among it: choose other settings, or ask its host for POSKERNEL_API=on."
)
T = TypeVar("T")
Answer = Callable[[Request, Caller, Mapping[str, str]], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one address: what answers (its docstring says what), and its parameters.

    ``returns`` names what it returns, by status; ``queries`` are the names after the '?'.
    """

    method: str
    path: str
    answer: Answer
    returns: Mapping[int, str]
    queries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part of a stored answer: its key, its coordinates, and whether somebody typed its text.

    ``read`` returns the whole answer, or None; ``version`` tells apart answers of the same key.
    """

    key: str
    chosen: Mapping[str, int]
    private: bool
    read: Callable[[], Result | None]
    version: str = ""


class Api:
    """The answers for programs.

    Args:
        engine: returns the engine of the pages.
        callers: who asks.
    """

    def __init__(self, engine: Callable[[], Engine], callers: Callers) -> None:
        self.engine, self.callers = engine, callers
        self._encoded = Encoded()
        # Of the one thread of the event loop: requests by the hash of their bodies, plans by key.
        self._wanted: TTLCache[bytes, Wanted] = TTLCache(4096, FRESH)
        self._plans: LRUCache[str, Plan] = LRUCache(4096)
        self._documents: dict[str, Any] = {}
        # No thread that pages use: those of the default pool read their files.
        self._threads = ThreadPoolExecutor(4, "answers")
        self._drawing = ThreadPoolExecutor(1, "pictures")

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return all that can be asked."""
        return (
            Endpoint("GET", "/models", self.models, {200: "Models"}),
            Endpoint("GET", "/questions", self.questions, {200: "Questions"}),
            Endpoint("GET", "/questions/{name}", self.question, {200: "Question"}),
            Endpoint("POST", "/first", self.first, {200: "First"}),
            Endpoint("POST", "/answers", self.ask, {200: "Answer", 202: "Job"}, ("wait",)),
            Endpoint("GET", "/answers/{key}", self.again, {200: "Answer"}, ("head", "query")),
            Endpoint("GET", "/jobs/{id}", self.job, {200: "Job"}, ("wait",)),
            Endpoint("DELETE", "/jobs/{id}", self.cancel, {200: "Job"}),
            Endpoint("GET", "/jobs/{id}/events", self.events, {200: "Events"}),
            Endpoint("GET", "/openapi.json", self.openapi, {200: "Document"}),
        )

    def route(self, started_as: str = "") -> BaseRoute:
        """Return the route of all below ``/api``, behind its doors.

        Args:
            started_as: the name that the server was started with; empty if it was given none.
        """
        routes = [
            Route(
                f"/v1{endpoint.path}", partial(self._answered, endpoint), methods=[endpoint.method]
            )
            for endpoint in self.endpoints()
        ]
        handlers: Any = dict.fromkeys((PosKernelError, Problem, HTTPException, Exception), answered)
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Mount("/api", doors(app, started_as))

    async def _answered(self, endpoint: Endpoint, request: Request) -> Response:
        if mode() == "off":
            raise Problem(404, "This server does not answer programs (POSKERNEL_API=off).")
        caller = self.callers.of(request)
        return await endpoint.answer(request, caller, queries_of(request, endpoint.queries))

    async def models(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """List the models on offer, with the runs that are stored of each."""
        models = await self._work(lambda: inventory(self.engine().store))
        for model in () if caller.local else models:
            model |= {"problem": without_paths(model["problem"])} if "problem" in model else {}
        return _json(models)

    async def questions(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """List the questions."""
        every = analyses.ANALYSES.values()
        return _json(self._document("", lambda: [listed(analysis) for analysis in every]))

    async def question(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """Describe a question: its parameters, its values, and the JSON Schema of its answers."""
        name = analyses.find(request.path_params["name"]).name
        return _json(self._document(name, lambda: described(name)))

    async def first(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """List what the pages of a model show first: questions, and their parameters."""
        body = await body_of(request)
        return _json(await self._work(lambda: first(read(body, First))))

    async def openapi(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """Describe this interface as an OpenAPI document."""
        from serving.openapi import document

        return _json(self._document("openapi.json", lambda: document(self.endpoints())))

    def _document(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._documents:
            self._documents[name] = make()
        return self._documents[name]

    async def ask(self, request: Request, caller: Caller, queries: Mapping[str, str]) -> Response:
        """Ask a question, as pk.show does: the answer if it is stored, else the job for it."""
        body, form = await body_of(request), accepted(_accept(request))
        wait = number(queries, "wait", MAX_WAIT)
        if (wanted := self._wanted.get(name := sha256(body).digest())) is None:
            wanted = await self._work(lambda: planned(read(body, Asked)))
            if wanted.plan.settled:
                self._wanted[name] = wanted
        plan = wanted.plan
        if _private(plan):
            self.callers.holdings(caller).texts[plan.key] = True
        part = await self._part(plan, wanted.chosen)
        if response := await self._sent(request, caller, form, part):
            return response
        if mode() == "stored":
            raise ComputeDisabled(STORED_ONLY)
        client = caller.name(detached=wanted.detach)
        job = await self._work(lambda: self.engine().submit(plan, client))
        ticket = self.callers.add(caller, client, plan, wanted.chosen, job)
        if wait:
            with self.callers.waiting(caller):
                await heard(job, lambda: job.state in ENDS, wait)
        if job.error is not None:
            raise job.error
        if job.state == "done":
            plan = await self._work(plan.again)
            part = await self._part(plan, wanted.chosen)
            if response := await self._sent(request, caller, form, part):
                return response
        where = {"Location": f"jobs/{ticket.key}", "Retry-After": "1"}
        return JSONResponse(await self._about(ticket, caller), 202, where)

    async def again(self, request: Request, caller: Caller, queries: Mapping[str, str]) -> Response:
        """Return a stored answer again, or another part or form of it."""
        key, form, chosen = request.path_params["key"], accepted(_accept(request)), part_of(queries)
        forgotten = Problem(
            404,
            "Nothing is stored under this key, it is not yours, or it was put together from other "
            "answers by a server that has begun anew: ask for it again by POST to answers.",
        )
        if (plan := self._plans.get(key)) is not None:
            part = await self._part(plan, chosen)
        elif KEY.fullmatch(key):
            read = partial(stored, self.engine().store, key)
            if (result := await self._work(read)) is None:
                raise forgotten
            private = typed(result.params, str(result.provenance.get("corpus")))
            part = Part(key, chosen, private, read)
        else:
            raise forgotten
        if part.private and key not in self.callers.holdings(caller).texts:
            raise forgotten
        if not (response := await self._sent(request, caller, form, part)):
            raise forgotten
        return response

    async def _part(self, plan: Plan, chosen: Mapping[str, int]) -> Part:
        """Return a part of the answer to a plan; a composition's follows from what is there."""
        self._plans[plan.key] = plan
        engine, version = self.engine(), ""
        if plan.composition is not None:
            has = engine.store.has
            there = await self._work(lambda: [key for key in plan.keys if has(key)])
            version = f".{sha256(' '.join(there).encode()).hexdigest()[:8]}"
        return Part(plan.key, chosen, _private(plan), partial(engine.cached, plan), version)

    async def _sent(
        self, request: Request, caller: Caller, form: Form, part: Part
    ) -> Response | None:
        """Return the response with a part of an answer, or None if it is not stored."""
        packed = form.packs and "gzip" in request.headers.get("accept-encoding", "")
        tag = tag_of(part.key + part.version, form, **names_of(part.chosen))
        headers = {
            "ETag": tag,
            "Vary": "Accept",
            "Cache-Control": "private, no-cache" if part.private else "no-cache",
            "Content-Location": _where(part.key, part.chosen),
        }
        if request.method == "GET":
            del headers["Content-Location"]
            if tag in re.findall(r'"[^"]*"', request.headers.get("if-none-match", "")):
                return Response(status_code=304, headers=headers)

        def made() -> bytes | None:
            if (result := part.read()) is None:
                return None
            chosen = result.select(**part.chosen)
            return self._encoded.make(tag, form, part.key, chosen, packed=packed)

        if (data := self._encoded.get(tag, packed=packed)) is None and form.draws:
            with self.callers.waiting(caller):
                data = await self._work(made, self._drawing)
        elif data is None:
            data = await self._work(made)
        if data is None:
            return None
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        return Response(data, media_type=form.media, headers=headers)

    async def job(self, request: Request, caller: Caller, queries: Mapping[str, str]) -> Response:
        """Say how far a job is, at once or when it has ended."""
        ticket = self.callers.ticket(caller, request.path_params["id"])
        if wait := number(queries, "wait", MAX_WAIT):
            with self.callers.waiting(caller):
                await heard(ticket.job, lambda: ticket.job.state in ENDS, wait)
        return _json(await self._about(ticket, caller))

    async def cancel(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """Cancel a job; it goes on for others who wait for it."""
        ticket = self.callers.ticket(caller, request.path_params["id"])
        await self._work(lambda: self.engine().cancel(ticket.plan, ticket.client))
        return _json(await self._about(ticket, caller))

    async def events(self, request: Request, caller: Caller, _: Mapping[str, str]) -> Response:
        """Tell of a job as it goes on, as server-sent events: progress, stages, and its end."""
        ticket = self.callers.ticket(caller, request.path_params["id"])
        waiting = self.callers.waiting(caller)
        waiting.__enter__()  # refused before the stream begins

        async def events() -> AsyncIterator[str]:
            try:
                async for event in self._events(ticket, caller):
                    fields = (f"{name}: {text}" for name, text in event.items())
                    yield "\n".join([*fields, "\n"]) if event else ": it goes on\n\n"
            finally:
                waiting.__exit__(None, None, None)

        return StreamingResponse(
            events(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def _events(self, ticket: Ticket, caller: Caller) -> AsyncIterator[dict[str, str]]:
        """Yield the events of a job; that of a stage has its address as its id."""
        job, plan, engine, seen = ticket.job, ticket.plan, self.engine(), 0
        query, loop = looked_at(plan.request, ticket.chosen), asyncio.get_running_loop()
        if job.state not in ENDS and not job.cancelling:
            await self._work(lambda: engine.submit(plan, ticket.client, query))
        end = loop.time() + LISTEN_SECONDS
        while True:
            over = job.state in ENDS
            if not over and job.formed > seen:
                seen = job.formed
                stage = plan.of_stage(seen, query)
                if (result := await self._work(partial(engine.cached, stage))) is not None:
                    self._plans[stage.key] = stage
                    if _private(plan):
                        self.callers.holdings(caller).texts[stage.key] = True
                    data = stage_json(result.select(**ticket.chosen), plan.run.windows)
                    yield {"event": "stage", "id": _where(stage.key, ticket.chosen), "data": data}
            before, name = _state(job), "end" if over else "progress"
            yield {"event": name, "data": json.dumps(await self._about(ticket, caller))}
            await asyncio.sleep(0 if over else PACE)
            while not over and not await heard(job, lambda: _state(job) != before, BREATH):  # noqa: B023
                yield {}
                over = loop.time() > end
            if over or loop.time() > end:
                return

    async def _about(self, ticket: Ticket, caller: Caller) -> dict[str, Any]:
        """Return what is told of a job; the addresses in it are relative to ``api/v1/``."""
        job = ticket.job
        fields = {
            "id": ticket.key,
            "question": ticket.plan.question.name,
            **{name: getattr(job, name) for name in ("state", "note", "done", "total")},
            "seconds_left": job.seconds_left(),
        }
        if job.state == "done":
            plan = await self._work(ticket.plan.again)
            fields["answer"] = _where(plan.key, ticket.chosen)
            self._plans[plan.key] = plan
        if job.error is not None:
            fields["problem"] = problem_of(job.error).fields(local=caller.local)
        return fields

    async def _work(self, work: Callable[[], T], threads: Executor | None = None) -> T:
        """Do something in a thread, for a caller from outside."""

        def done() -> T:
            with from_outside():
                return work()

        return await asyncio.wrap_future((threads or self._threads).submit(done))


def mode() -> str:
    """Return what programs get here: ``off``, ``stored`` answers, or new ones as well (``on``)."""
    alone = config.get_option("server.address") in THIS_MACHINE
    return settings().api or ("on" if alone else "stored")


async def heard(job: Job, condition: Callable[[], bool], seconds: float) -> bool:
    """Wait, in no thread, until events of a job make a condition true; return whether they did."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def hear(_: Job) -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(news.set)

    job.on_event.append(hear)
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await news.wait()
                news.clear()
        return True
    except TimeoutError:
        return False
    finally:
        job.on_event.remove(hear)


def _state(job: Job) -> tuple[Any, ...]:
    return job.state, job.note, job.done, job.formed


def names_of(chosen: Mapping[str, int]) -> dict[str, str]:
    """Return the head and the query position that were chosen, as texts; empty if they were not."""
    head = head_name(chosen["layer"], chosen["head"]) if "head" in chosen else ""
    return {"head": head, "query": str(chosen.get("query", ""))}


def _where(key: str, chosen: Mapping[str, int]) -> str:
    query = urlencode({name: text for name, text in names_of(chosen).items() if text})
    return f"answers/{key}{query and '?'}{query}"


def _private(plan: Plan) -> bool:
    return typed(plan.params.model_dump(), plan.run.corpus.name)


def _accept(request: Request) -> str:
    return ",".join(request.headers.getlist("accept"))


def _json(value: Any) -> Response:
    return JSONResponse(value, headers={"Cache-Control": "no-cache"})
