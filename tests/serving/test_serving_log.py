"""The access log: one line of JSON for each request and each session, whatever is asked."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest
from serving.access_log import AccessLog, open_log
from tests.support.alone import run_alone
from tests.support.asgi import STREAM, Wire, ask, scope
from tests.support.disks import fill, small_disk


async def fine(asked, receive, send):
    """An app that answers every request in two parts."""
    await send({"type": "http.response.start", "status": 206, "headers": []})
    await send({"type": "http.response.body", "body": b"12345", "more_body": True})
    await send({"type": "http.response.body", "body": b"67"})


async def fails(asked, receive, send):
    """An app that is at fault."""
    raise RuntimeError("a fault")


async def talks(asked, receive, send):
    """A session that answers each message with three bytes."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "bytes": b"abc"})


async def turns_away(asked, receive, send):
    """A session that is not accepted."""
    await send({"type": "websocket.close", "code": 1008})


@pytest.fixture
def file(tmp_path):
    """Where the lines go."""
    return tmp_path / "access.log"


def logged(file, app=fine, short=False):
    """An app whose requests are logged."""
    return AccessLog(app, open_log(str(file)), short)


def lines(file):
    """The lines so far, each parsed."""
    return [json.loads(line) for line in file.read_text("ascii").splitlines()]


def test_a_request(file):
    """Time, address, method, path without the query, status, bytes, milliseconds."""
    asked = scope("/own_text", query_string=b"text=a+secret", method="POST")
    ask(logged(file), asked)

    (line,) = lines(file)
    when, passed = datetime.fromisoformat(line.pop("time")), line.pop("ms")
    assert timedelta(0) <= datetime.now(UTC) - when < timedelta(minutes=5)
    assert 0 <= passed < 60_000
    assert line == {
        "event": "request",
        "visitor": "203.0.113.7",
        "method": "POST",
        "path": "/own_text",
        "status": 206,
        "bytes": 7,
    }
    assert "secret" not in file.read_text("ascii")


def test_a_session(file):
    """Its line comes when it ends, and tells how long it was and what went either way."""
    more = [
        {"type": "websocket.receive", "bytes": b"12"},
        {"type": "websocket.receive", "text": "é"},
    ]
    ask(logged(file, talks), scope(STREAM, "websocket"), *more, {"type": "websocket.disconnect"})

    (line,) = lines(file)
    del line["time"]
    assert 0 <= line.pop("seconds") < 60
    assert line == {
        "event": "session",
        "visitor": "203.0.113.7",
        "path": STREAM,
        "status": 101,
        "bytes": 6,
        "received": 4,
    }


def test_what_ends_otherwise(file):
    """A fault, a session that is not accepted, a reader who is gone before there is an answer."""
    with pytest.raises(RuntimeError):
        ask(logged(file, fails), scope())
    ask(logged(file, turns_away), scope(STREAM, "websocket"))

    async def waits(asked, receive, send):
        await asyncio.Event().wait()

    async def leave():
        wire = Wire()
        going = asyncio.create_task(logged(file, waits)(scope(), wire.receive, wire.send))
        await asyncio.sleep(0)
        going.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await going

    run_alone(leave())

    assert [500, 403, None] == [line["status"] for line in lines(file)]


def test_shortened_addresses(file):
    """By setting, nobody's whole address is written."""
    for client in ("203.0.113.7", "2001:db8:1:2::9"):
        ask(logged(file, short=True), scope(client=client))

    assert ["203.0.113.0", "2001:db8:1::"] == [line["visitor"] for line in lines(file)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text(max_size=20), st.text(max_size=20))
def test_nothing_that_is_sent_makes_a_line(file, path, method, client):
    """Line ends, quotes, terminal codes and halves of characters stay inside one line of ASCII."""
    file.unlink(missing_ok=True)
    ask(logged(file), scope("/" + path, method=method, client=client))

    data = file.read_bytes()
    assert data.isascii()
    assert 1 == len(data.decode().splitlines()) == data.count(b"\n")
    assert all(32 <= byte for byte in data[:-1])
    assert ("/" + path)[:200] == lines(file)[0]["path"]


@pytest.mark.parametrize(
    "path", ['/\r\n{"event": "request"}', "/\x1b[2J", "/\u2028", "/\udcff", "/" + "x" * 9000]
)
def test_nasty_paths(file, path):
    """As they were asked for, up to a bound."""
    ask(logged(file), scope(path))

    (line,) = lines(file)
    assert path[:200] == line["path"]


def test_the_number_of_a_session_is_not_told(file):
    """Whoever knows it could reach what its reader has uploaded."""
    ask(logged(file), scope("/_stcore/upload_file/1234-5678/9"))

    assert "1234" not in file.read_text("ascii")
    assert "/_stcore/upload_file" == lines(file)[0]["path"]


def test_standard_output(capsys):
    """For hosts that collect what a container prints."""
    ask(AccessLog(fine, open_log("-"), False), scope("/helix"))

    assert "/helix" == json.loads(capsys.readouterr().out)["path"]


def test_a_log_that_is_moved_away(file):
    """As rotation does: a new file is begun; one that is added to is kept."""
    file.write_text('{"path": "earlier"}\n')
    app = logged(file)
    ask(app, scope("/a"))
    file.rename(file.with_suffix(".1"))
    ask(app, scope("/b"))

    assert ["earlier", "/a"] == [line["path"] for line in lines(file.with_suffix(".1"))]
    assert ["/b"] == [line["path"] for line in lines(file)]


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    """At the start, in one sentence."""
    with pytest.raises(BadRequest, match=r"^Expected POSKERNEL_ACCESS_LOG to be a file that can"):
        open_log(str(tmp_path / "missing" / "access.log"))
    with pytest.raises(BadRequest, match=r"Is a directory"):
        open_log(str(tmp_path))


@pytest.mark.parametrize("fault", ["full", "gone"])
def test_readers_are_answered_where_no_line_can_be_written(tmp_path, capsys, fault):
    """On a full disk, in a folder that was removed; the host is told once."""
    with small_disk(tmp_path / "disk", 1) as disk:
        folder = disk / "logs"
        folder.mkdir()
        app = logged(folder / "access.log")
        if fault == "full":
            fill(disk)
        else:
            (folder / "access.log").unlink()
            folder.rmdir()
        assert [206, 206] == [ask(app, scope()).status for _ in range(2)]
        open_log("-")  # closes the file, so that the disk can go

    told = capsys.readouterr().err.splitlines()
    assert 1 == len(told), told
    assert told[0].startswith("The access log cannot be written (")
