"""A server asked from Python: the same results to the bit, errors, jobs, and what is refused."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import poskernel_core as pk
from poskernel_core import __version__
from poskernel_core.analyses import ANALYSES
from poskernel_core.cli import main as cli
from poskernel_core.common import errors
from poskernel_core.common.result import NUMBERS
from poskernel_core.engine.provenance import from_line, to_line
from poskernel_core.server import identity
from serving import api as api_module
from serving.api import Api
from serving.asked import Wanted
from serving.callers import Callers
from tests.support import made_results, until
from tests.support.server import free_port

MODEL = "demo-attn-2l"
KEY = f"{'0' * 16}-{'0' * 64}"
SMALL = {"context": 32, "windows": 10}

pytestmark = pytest.mark.usefixtures("unchecked")


class Served:
    """Routes at an address of this machine, in a thread."""

    def __init__(self, *routes, lifespan=None):
        self.port, app = free_port(), Starlette(routes=routes, lifespan=lifespan)
        config = uvicorn.Config(app, port=self.port, log_level="critical")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until(lambda: self.server.started, 30)
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.server.should_exit = self.server.force_exit = True
        self.thread.join()


def health(**more):
    return Route("/health", lambda _: JSONResponse(identity() | more))


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("POSKERNEL_API", "on")
    served = []

    def start(*routes):
        served.append(Served(*routes))
        return served[-1]

    yield start
    for each in served:
        each.stop()


@pytest.fixture
def server(serve, shipped):
    return pk.connect(serve(health(), Api(lambda: shipped, Callers()).route()).url)


@pytest.fixture
def computing(serve, engine, near_workers):
    return pk.connect(serve(health(), Api(lambda: engine, Callers()).route()).url)


def same(one, other):
    """To the bit: every array with its type, every text, the provenance, in the same order."""
    for part in (*NUMBERS, "coordinates", "texts"):
        assert [*getattr(one, part)] == [*getattr(other, part)], part
        for name, array in getattr(one, part).items():
            theirs = getattr(other, part)[name]
            assert (array.dtype, array.shape) == (theirs.dtype, theirs.shape), name
            assert array.tolist() == theirs.tolist() or array.tobytes() == theirs.tobytes(), name
    for part in ("analysis", "axes", "units", "labels", "chosen", "provenance"):
        assert getattr(one, part) == getattr(other, part), part
    assert one.as_json().keys() == other.as_json().keys()


def test_every_question(serve, monkeypatch):
    """With what it declares: numbers, NaN, codes, texts, whole answers and parts of them."""
    made = {}
    for name in ANALYSES:
        made[name] = made_results.answer(name)
        for array in made[name].values.values():
            if array.dtype.kind == "f" and array.size:
                array.flat[0] = np.nan

    def planned(asked):
        part = {"layer": 1, "head": 2} if asked.head else {}
        run = SimpleNamespace(corpus=SimpleNamespace(name="sample"))
        plan = SimpleNamespace(question=asked.question, key=KEY, composition=None, settled=True,
                               run=run, params=ANALYSES["etc"].params())  # fmt: skip
        return Wanted(plan, part)

    monkeypatch.setattr(api_module, "planned", planned)
    engine = SimpleNamespace(cached=lambda plan: made[plan.question])
    api = Api(lambda: engine, Callers())
    monkeypatch.setattr(api._encoded, "get", lambda *_, **__: None)  # noqa: SLF001 (one key for all)
    server = pk.connect(serve(health(), api.route()).url)
    for name, result in made.items():
        same(result, server.show(name, MODEL))
        if "head" in ANALYSES[name].selectable():
            same(result.select(layer=1, head=2), server.show(name, MODEL, head="L1H2"))


def test_as_the_module_answers(server, shipped):
    for options in ({}, {"head": "L1H2"}, {"head": "L0H0", "query": np.int64(127)}):
        same(pk.show("etc", MODEL, engine=shipped, **options), server.show("etc", MODEL, **options))
    same(
        pk.show("verdicts", MODEL, engine=shipped, params={"leave_out": "additivity"}),
        server.show("verdicts", pk.ModelSpec(name=MODEL), params={"leave_out": "additivity"}),
    )
    view = server.view("kernel", MODEL, head="L1H2", query=127)
    assert pk.view("kernel", MODEL, engine=shipped, head="L1H2", query=127).figure == view.figure
    assert view.link.startswith(server.address)
    assert pk.schema("etc") == server.schema("etc")
    assert pk.schema("etc", live=True) == server.schema("etc", live=True)
    assert [*ANALYSES] == [each["name"] for each in server.questions()]
    assert MODEL in [each["name"] for each in server.models()]


def test_what_is_computed(computing, engine):
    told = []
    result = computing.show(
        "etc", MODEL, tell=told.append, corpus=pk.CorpusSpec(name="bible"), **SMALL
    )
    assert told
    same(result, pk.show("etc", MODEL, engine=engine, corpus="bible", **SMALL))
    text = {"params": {"text": "And the king said."}}
    same(computing.show("own-text", MODEL, **text, **SMALL),
         pk.show("own-text", MODEL, engine=engine, **text, **SMALL))  # fmt: skip


def test_while_it_forms(computing, engine):
    """Stages are whole results; what is stored comes at once."""
    options = {"query": 40, "context": 64, "windows": 40}
    stages = [*computing.watch("etc", MODEL, **options)]
    windows = [each.provenance["windows"] for each in stages]
    assert sorted(windows) == windows
    assert 40 == windows[-1]
    same(pk.show("etc", MODEL, engine=engine, **options), stages[-1])
    assert 1 == len([*computing.watch("etc", MODEL, **options)])


def test_precompute(computing, engine):
    names = computing.precompute(MODEL, context=16, windows=10)
    assert names == pk.precompute(MODEL, engine=engine, context=16, windows=10)
    assert "etc" in names


def test_an_interrupt_cancels(serve, engine, near_workers, monkeypatch):
    server = pk.connect(serve(health(), Api(lambda: engine, Callers()).route()).url)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.show("etc", MODEL, tell=interrupt, context=128, windows=500)
    until(lambda: all(job.cancelling for job in engine.open_jobs()))


REFUSED = [
    ({"model": Path("/models/x")}, "paths and objects of this machine"),
    ({"model": "/models/x"}, "paths and objects of this machine"),
    ({"model": "~/x"}, "paths and objects of this machine"),
    ({"model": object()}, "paths and objects of this machine"),
    ({"engine": None}, "its own engine"),
    ({"model": "none"}, "There is no such model here"),
    ({"analysis": "none"}, "No analysis 'none'"),
    ({"head": "L99H0"}, "L99H0"),
    ({"params": {"skip": -1}}, "skip"),
    ({"contxt": 4}, "contxt"),
]


@pytest.mark.parametrize(("asked", "said"), REFUSED)
def test_what_is_refused(server, asked, said):
    with pytest.raises(errors.BadRequest, match=said):
        server.show(**{"analysis": "etc", "model": MODEL} | asked)


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.jsonl"])
def test_a_table_of_pairs_is_read_here(server, monkeypatch, tmp_path, name):
    """Its text is sent, and a file of lines is no conversation."""
    sent = []

    def got(method, path, body):
        sent.append(body["params"]["pairs"])
        raise errors.Busy("Later.")

    monkeypatch.setattr(server, "_got", got)
    (tmp_path / name).write_text("clean,changed\n")
    with pytest.raises(errors.Busy):
        server.show("patch-heads", MODEL, params={"pairs": str(tmp_path / name)})
    assert ["clean,changed\n"] == sent


def test_errors_have_their_class(server, monkeypatch):
    monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
    with pytest.raises(errors.ComputeDisabled):
        server.show("etc", MODEL, context=17)
    with pytest.raises(errors.UnknownAnalysis):
        server.schema("none")


def test_who_answers(serve, capsys, monkeypatch):
    """Another version says so; something else, or nobody, is an error of one sentence."""
    pk.connect(serve(health(version="0.9")).url)
    told = capsys.readouterr().err
    assert "0.9" in told
    assert __version__ in told
    for other in (Route("/health", lambda _: PlainTextResponse("fine")), health(program="Other"),
                  Route("/", lambda _: Response())):  # fmt: skip
        with pytest.raises(errors.BadRequest, match="something else answers"):
            pk.connect(serve(other).url)
    with pytest.raises(errors.BadRequest, match="none answers"):
        pk.connect(f"http://127.0.0.1:{free_port()}", timeout=0.5)
    for address, said in (
        (None, "POSKERNEL_SERVER"),
        ("localhost", "dashboard"),
        ("", "dashboard"),
    ):
        with pytest.raises(errors.BadRequest, match=said):
            pk.connect(address)
    monkeypatch.setenv("POSKERNEL_SERVER", serve(health()).url)
    assert "PosKernel at http://127" in repr(pk.connect())


def test_a_connection_that_drops(server, monkeypatch):
    real, lost = httpx2.Client.stream, []

    def stream(client, method, path, **more):
        if len(lost) < 2:
            lost.append(path)
            raise httpx2.RemoteProtocolError("closed")
        return real(client, method, path, **more)

    monkeypatch.setattr(httpx2.Client, "stream", stream)
    assert "etc" == server.show("etc", MODEL).analysis
    assert ["answers", "answers"] == lost


def damaged(line):
    yield from (b"", line[:-1], line[:32], b"\0" * 100, line[:40] + b"\xff" + line[41:])
    yield to_line(KEY.replace("0", "1"), from_line(KEY, line))


def hostile(header):
    """What a store would refuse, with a right checksum."""
    yield "axes", {"etc": ["layer"]}
    yield "texts", {"tokens": [{"a": 1}]}
    yield "order", {part: ["none"] for part in (*NUMBERS, "coordinates")}
    yield "chosen", {"layer": "x"}
    yield "labels", 4


def test_what_comes_over_the_line_is_not_trusted(shipped):
    from poskernel_core.storage.encoding import decode, encode

    line = to_line(KEY, pk.show("etc", MODEL, engine=shipped))
    for data in damaged(line):
        with pytest.raises(errors.BadRequest, match="damaged"):
            from_line(KEY, data)
    header, arrays = decode(line, KEY)
    for name, value in hostile(header):
        with pytest.raises(errors.BadRequest, match="damaged"):
            from_line(KEY, encode(KEY, header | {name: value}, arrays))


@pytest.mark.parametrize(
    "reply",
    [
        lambda: Response(b"{}", headers={"Content-Location": f"answers/{KEY}"}),
        lambda: Response(b"", 202, {"Location": "http://evil.org/jobs/x"}),
        lambda: Response(b"", 202, {"Location": "jobs/../../admin"}),
        lambda: Response(b"", 202),
        lambda: Response(b"<html>", 502),
        lambda: Response(b"", 302, {"Location": "http://evil.org"}),
        lambda: Response(b'{"detail": "x", "error": "KeyError"}', 400),
    ],
)
def test_other_replies(serve, reply):
    server = pk.connect(
        serve(health(), Route("/api/v1/answers", lambda _: reply(), methods=["POST"])).url
    )
    began = time.monotonic()
    with pytest.raises(errors.PosKernelError) as error:
        server.show("etc", MODEL)
    assert "\n" not in str(error.value)
    assert time.monotonic() - began < 20


def test_other_replies_about_a_job(serve):
    """What is no job is an error; too many requests that wait are asked again."""
    running = {"state": "running", "note": "x"}
    replies = iter([(429, {"detail": "Later."}), (200, running), (200, [])])

    def job(_):
        status, told = next(replies)
        return JSONResponse(told, status)

    gone = []
    server = pk.connect(
        serve(
            health(),
            Route("/api/v1/answers", lambda _: Response(b"", 202, {"Location": "jobs/x"}),
                  methods=["POST"]),
            Route("/api/v1/jobs/x", job, methods=["GET"]),
            Route("/api/v1/jobs/x", lambda _: gone.append(1) or Response(), methods=["DELETE"]),
        ).url
    )  # fmt: skip
    told = []
    with pytest.raises(errors.BadRequest, match="JSON object"):
        server.show("etc", MODEL, tell=told.append)
    assert [running] == told
    assert [1] == gone
    with pytest.raises(errors.BadRequest, match="dictionary"):
        server.show("etc", MODEL, params=[4])


def printed(capsys, *arguments):
    assert 0 == cli.main([*arguments]), capsys.readouterr().err
    return capsys.readouterr().out


def test_the_command_line(server, capsys, monkeypatch, tmp_path):
    """It prints what it prints here; POSKERNEL_SERVER is as good as the option."""
    asked = ("show", "etc", MODEL, "--head", "L1H2", "--query", "127")
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr("poskernel_core.engine.engine.Child", None)  # nothing computes
    for more in ((), ("--json",), ("--live", "--json")):
        here = printed(capsys, *asked, *more)
        assert here == printed(capsys, *asked, *more, "--server", server.address)
    schemas = printed(capsys, "schema", "etc", "--live")
    models = printed(capsys, "models").splitlines()
    monkeypatch.setenv("POSKERNEL_SERVER", server.address)
    monkeypatch.setattr("poskernel_core.engine.engine.Engine", None)
    assert here == printed(capsys, *asked, *more)
    assert schemas == printed(capsys, "schema", "etc", "--live")
    theirs = printed(capsys, "models").splitlines()
    assert [each.split()[0] for each in models] == [each.split()[0] for each in theirs]
    assert 2 == cli.main([*asked, "--device", "cpu"])
    assert "leave both out" in capsys.readouterr().err
