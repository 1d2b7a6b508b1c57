"""A dashboard on another machine, asked from Python: ``pk.connect``. It needs no torch."""

from __future__ import annotations

import json
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from os import PathLike
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import httpx2

from poskernel_core import __version__
from poskernel_core.api import read_params
from poskernel_core.common.errors import BadRequest, ComputeFailed, PosKernelError, by_name
from poskernel_core.common.files import parse_json
from poskernel_core.common.result import Result
from poskernel_core.common.settings import PATHS, checked_address, settings
from poskernel_core.common.specs import AnyModel, ModelSpec, Spec, brief, plain_python
from poskernel_core.engine.provenance import from_line

if TYPE_CHECKING:
    from poskernel_core.export.notebook import View

EXACT = "application/vnd.poskernel"
"""The store's own form of an answer, with every array as it is in memory."""

CLIENT = "PosKernel-Client"
"""The header in which a program names itself."""

MAX_REPLY = 2**27
"""Most bytes of a reply that are read."""

WAIT = 20
"""Seconds that one request waits for the end of a job."""

PAUSE = 1.0
"""Seconds before a server is asked again that lets too many wait."""

ANSWER = re.compile(r"answers/([0-9a-f]{16}-[0-9a-f]{64})(\?[\w=&]*)?", re.ASCII)
JOB = re.compile(r"jobs/[\w-]{1,64}", re.ASCII)
Job = Mapping[str, Any]


def connect(
    url: str | None = None, headers: Mapping[str, str] | None = None, timeout: float = 30.0
) -> Server:
    """Return a running dashboard, to ask it what :func:`show` asks this machine.

    Args:
        url: its address, such as ``"https://kernels.example.org"`` (default: ``POSKERNEL_SERVER``).
        headers: headers of every request, such as a token that its proxy checks.
        timeout: seconds in which it must answer, and for which a lost connection is tried again.

    Raises:
        BadRequest: nothing like that answers there.
    """
    address = settings().server if url is None else checked_address(url)
    if address is None:
        raise BadRequest(
            "Expected the address of a server, such as 'http://localhost:8501', got none: give "
            "it, or set POSKERNEL_SERVER."
        )
    return Server(address, headers or {}, timeout)


class Server:
    """A running dashboard; its methods are those of the module.

    Attributes:
        address: its address.
        version: its version of PosKernel.
        close: closes the connection; so does whatever forgets the server.
    """

    def __init__(
        self,
        address: str,
        headers: Mapping[str, str],
        timeout: float,
        inside: httpx2.BaseTransport | None = None,
    ) -> None:
        self.address, self.version, self._timeout = address, __version__, timeout
        own = {CLIENT: token_urlsafe(12), "User-Agent": f"PosKernel/{__version__}"}
        self._http = httpx2.Client(
            base_url=f"{address}/api/v1/",
            headers=own | dict(headers),
            timeout=timeout + WAIT,
            transport=inside,
        )
        self.close = weakref.finalize(self, self._http.close)
        if inside is None:
            self._check()

    def _check(self) -> None:
        """Check that a PosKernel server answers, and note its version."""
        address = self.address
        with suppress(ValueError, AttributeError):
            about = parse_json(self._sent("GET", f"{address}/health")[1])
            self.version = str(about.get("version"))
            if about.get("program") == "PosKernel":
                if self.version != __version__:
                    sentence = f"The server at {address} is of version {self.version}, this is"
                    print(f"{sentence} {__version__}.", file=sys.stderr)
                return
        raise BadRequest(f"Expected a PosKernel server at {address}, and something else answers.")

    def __repr__(self) -> str:
        return f"PosKernel at {self.address}"

    def show(
        self,
        analysis: str,
        model: AnyModel,
        *,
        tell: Callable[[Job], None] | None = None,
        **options: Any,
    ) -> Result:
        """Return a result as :func:`show` does; the arguments are the same.

        ``tell`` is called about each second with what the server says of the job while it computes.
        An interrupt, or an error of ``tell``, cancels it.

        Raises:
            PosKernelError: with a message of one sentence.
        """
        body = self._body(analysis, model, **options)
        for _ in range(3):  # a server that has begun anew knows no job of before
            reply, data = self._got("POST", "answers", body)
            if reply.status_code == 200:
                return _result(reply.headers.get("Content-Location", ""), data)
            if answer := self._waited(_job_of(reply), tell, cancels=not body["detach"]):
                return self._read(answer)
        raise ComputeFailed(f"The server at {self.address} loses its jobs: ask again later.")

    def watch(self, analysis: str, model: AnyModel, **options: Any) -> Iterator[Result]:
        """Yield a result while it forms, as :func:`watch` does.

        Raises:
            PosKernelError: with a message of one sentence.
        """
        for result, _ in self.stages(analysis, model, **options):
            yield result

    def stages(
        self, analysis: str, model: AnyModel, **options: Any
    ) -> Iterator[tuple[Result, int]]:
        """Yield what :meth:`watch` does, each with the number of windows that it will be of.

        Raises:
            PosKernelError: with a message of one sentence.
        """
        body = self._body(analysis, model, **options)
        reply, data = self._got("POST", "answers", body)
        if reply.status_code == 200:
            result = _result(reply.headers.get("Content-Location", ""), data)
            yield result, _windows(result)
            return
        job, over = _job_of(reply), False
        try:
            with suppress(httpx2.TransportError):  # what is lost on the way is read in the end
                for stage, windows in self._stages(job):
                    with suppress(BadRequest):  # dropped meanwhile
                        yield self._read(stage), windows
            answer = self._waited(job)
            over = True
        finally:
            if not over:
                self._cancel(job)
        result = self._read(answer) if answer else self.show(analysis, model, **options)
        yield result, _windows(result)

    def view(
        self, analysis: str, model: AnyModel, *, embed: bool | None = None, **options: Any
    ) -> View:
        """Return a result with its figure, which is drawn here, as :func:`view` does.

        Raises:
            PosKernelError: with a message of one sentence.
        """
        from poskernel_core.export.notebook import View

        return View(self.show(analysis, model, **options), self.address, embed)

    def precompute(self, model: AnyModel, *, experiments: bool = False, **run: Any) -> list[str]:
        """Have the server compute what the pages show first, as :func:`precompute` does.

        Raises:
            PosKernelError: with a message of one sentence.
        """
        body = self._body("", model, **run)
        given = {name: body[name] for name in ("model", "revision", "run")}
        first = _json(*self._got("POST", "first", given | {"experiments": experiments}))
        done = []
        for request in first:
            self._got("POST", "answers", given | request)  # together, so that they share passes
        for request in first:
            self.show(request["question"], model, params=request["params"], **run)
            done.append(request["question"])
        return done

    def questions(self) -> list[dict[str, Any]]:
        """Return the server's questions: name, title and summary."""
        return self._list("questions")

    def models(self) -> list[dict[str, Any]]:
        """Return the server's models: sizes, whether weights are there, which runs are stored."""
        return self._list("models")

    def schema(self, analysis: str, *, live: bool = False) -> dict[str, Any]:
        """Return the JSON Schema of answers, as :func:`schema` does.

        Raises:
            UnknownAnalysis: the server has no question of that name.
        """
        json_schema: dict[str, Any] = (
            self.question(analysis).get("stage" if live else "answer") or {}
        )
        return json_schema

    def question(self, analysis: str) -> dict[str, Any]:
        """Return the server's description of a question: parameters, values, schema of answers.

        Raises:
            UnknownAnalysis: the server has no question of that name.
        """
        if not re.fullmatch(r"[\w-]+", analysis):
            raise BadRequest(f"Expected the name of a question, got {brief(analysis)}.")
        return _object(*self._got("GET", f"questions/{analysis}"))

    def _list(self, what: str) -> list[dict[str, Any]]:
        entries = _json(*self._got("GET", what))
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise BadRequest(f"Expected {what} from {self.address}, got something else.")
        return entries

    def _body(
        self,
        analysis: str,
        model: AnyModel,
        *,
        head: str | None = None,
        query: int | None = None,
        params: Mapping[str, Any] | None = None,
        detach: bool = False,
        revision: str | None = None,
        files: bool = True,
        **run: Any,
    ) -> dict[str, Any]:
        """Return the request with the arguments of :func:`show`.

        With ``files``, a text that is the path of a file is read from it.
        """
        path = isinstance(model, PathLike) or (
            files and isinstance(model, str) and model.startswith(PATHS)
        )
        if path or not isinstance(model, str | Mapping | ModelSpec):
            raise BadRequest(
                f"Expected the name of a model of the server, got {brief(model)}: paths and "
                "objects of this machine are asked here (pk.show)."
            )
        if "engine" in run:
            raise BadRequest("A server has its own engine: leave 'engine' out, or use pk.show.")
        spec, params = ModelSpec.model_validate(model), read_params(analysis, params, files=files)
        fields: dict[str, Any] = {"question": analysis, "model": spec.name}
        fields |= {"revision": revision or spec.revision, "head": head, "query": query}
        fields |= {"params": params, "detach": detach}
        fields["run"] = {name: value for name, value in run.items() if value is not None}
        return {name: _plain(value) for name, value in fields.items()}

    def _waited(
        self, job: str, tell: Callable[[Job], None] | None = None, *, cancels: bool = True
    ) -> str | None:
        """Return where the answer of a job is, when it has ended; None if the server lost it."""
        wait, over = 0, False
        try:
            while True:
                reply, data = self._sent("GET", f"{job}?wait={wait}")
                if reply.status_code == 404:
                    over = True
                    return None
                if reply.status_code == 429:  # too many wait: ask less often
                    time.sleep(PAUSE)
                    wait = 0
                    continue
                about = _object(*self._checked(reply, data))
                over = about.get("state") in ("done", "error", "cancelled")
                if over and "problem" in about:
                    raise _error(about["problem"])
                if over:
                    return str(about.get("answer"))
                if tell is not None:
                    tell(about)
                wait = 1 if wait == 0 or tell is not None else min(2 * wait, WAIT)
        finally:
            if not over and cancels:
                self._cancel(job)

    def _cancel(self, job: str) -> None:
        with suppress(httpx2.HTTPError):
            self._http.delete(job)

    def _stages(self, job: str) -> Iterator[tuple[str, int]]:
        """Yield where each stage of an answer is, and of how many windows it will be."""
        where = ""
        with self._http.stream("GET", f"{job}/events") as stream:
            for line in stream.iter_lines():
                if line == "event: end":
                    return
                if line.startswith("id: "):
                    where = line.removeprefix("id: ")
                elif line.startswith("data: ") and where:
                    windows = re.search(r'"of": (\d{1,9})', line[:200], re.ASCII)
                    yield where, int(windows[1]) if windows else 0
                    where = ""

    def _read(self, answer: str) -> Result:
        match = ANSWER.fullmatch(answer)
        if not match:
            raise BadRequest(f"Expected the address of an answer, got {brief(answer)}.")
        return _result(answer, self._got("GET", answer)[1])

    def _got(self, method: str, path: str, body: Any = None) -> tuple[httpx2.Response, bytes]:
        """Return a reply and its bytes, or raise the error that it tells of."""
        return self._checked(*self._sent(method, path, body))

    def _checked(self, reply: httpx2.Response, data: bytes) -> tuple[httpx2.Response, bytes]:
        if reply.status_code < 300:
            return reply, data
        problem: Any = None
        with suppress(ValueError):
            problem = parse_json(data)
        if isinstance(problem, dict) and "detail" in problem:
            raise _error(problem)
        raise BadRequest(
            f"Expected an answer of PosKernel at {self.address}, got status {reply.status_code}: "
            "check the address, and the token if its proxy asks for one."
        )

    def _sent(self, method: str, path: str, body: Any = None) -> tuple[httpx2.Response, bytes]:
        """Return a reply and its bytes; a connection that is lost is tried again for a while."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": EXACT if "answers" in path else "application/json"}
        if method != "GET":
            headers["Content-Type"] = "application/json"
        end, pause = time.monotonic() + self._timeout, 0.2
        while True:
            try:
                with self._http.stream(method, path, content=content, headers=headers) as reply:
                    data = b""
                    for chunk in reply.iter_bytes():
                        data += chunk
                        if len(data) > MAX_REPLY:
                            raise BadRequest(f"The server at {self.address} sends too much.")
                return reply, data
            except httpx2.TransportError as error:
                if time.monotonic() + pause > end or path.endswith("/health"):
                    raise BadRequest(
                        f"Expected a server at {self.address}, and none answers ({error}): check "
                        "the address, or start it there (poskernel serve)."
                    ) from error
                time.sleep(pause)
                pause *= 2


def _error(problem: Any) -> PosKernelError:
    """Return the error that a server tells of, by its class."""
    fields = problem if isinstance(problem, dict) else {}
    sentence = " ".join(str(fields.get("detail", "The computation failed.")).split())[:2000]
    return by_name(str(fields.get("error")))(sentence)


def _result(where: str, data: bytes) -> Result:
    match = ANSWER.fullmatch(where)
    return from_line(match[1] if match else "", data)


def _json(reply: httpx2.Response, data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        raise BadRequest(f"Expected JSON from {reply.url.host}, got something else.") from error


def _object(reply: httpx2.Response, data: bytes) -> dict[str, Any]:
    if not isinstance(fields := _json(reply, data), dict):
        raise BadRequest(f"Expected a JSON object from {reply.url.host}, got something else.")
    return fields


def _windows(result: Result) -> int:
    """Return of how many windows an answer is, the first of several."""
    windows = str(result.provenance.get("windows_asked", 0)).partition(",")[0]
    return int(windows) if windows.isdigit() else 0


def _job_of(reply: httpx2.Response) -> str:
    job = reply.headers.get("Location", "")
    if not JOB.fullmatch(job):
        raise BadRequest(f"Expected the address of a job, got {brief(job)}.")
    return str(job)


def _plain(value: Any) -> Any:
    """Return a value of a request as JSON has it."""
    if isinstance(value, Spec):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return plain_python(value)
