"""Admission: sessions and requests of one client and of all, counted however they end."""

import asyncio
import contextlib
import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.admission import FILES_A_REQUEST, Admission, ConnectionLimits, SlidingWindow
from tests.alone import run_alone
from tests.asgi import STREAM, Wire, ask, scope

HOME = "203.0.113.7"
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
RELOAD = {**BROWSER, "Cookie": "_streamlit_xsrf=2|x", "Cache-Control": "max-age=0"}
FILES = [
    "/static/js/index.x.js",
    "/media/ab.png",
    "/component/c/d.js",
    "/_stcore/bidi-components/x/y.js",
    "/health",
    "/_stcore/health",
]


async def fine(asked, receive, send):
    """An app that answers every request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


def guarded(app=fine, **limits):
    """A guarded app, and its admission."""
    admission = Admission(ConnectionLimits(**limits))
    return admission.guard(app), admission


def session(client=HOME, **more):
    """A request to open a web socket."""
    return scope(STREAM, "websocket", client, **more)


# Clients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("203.0.113.77", "203.0.113.77", True),
        ("203.0.113.77", "203.0.113.78", False),
        ("203.0.113.77", "::ffff:203.0.113.77", True),
        ("2001:db8:1:2:3:4:5:6", "2001:DB8:1:2::9", True),
        ("2001:db8:1:2::9", "2001:db8:1:3::9", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("_hidden" * 20, "_hidden" * 30, True),  # as long as an address at most
        ("", None, True),
    ],
)
def test_what_is_one_client(one, other, same):
    """An IPv4 address, an IPv6 network of 64 bits."""
    _, admission = guarded(sessions_each=1)
    with admission.session(session(one)):
        assert same == (admission.refusal(session(other)) is not None)


@pytest.mark.parametrize(
    ("client", "forwarded", "local"),
    [
        ("127.0.0.1", None, True),
        ("127.8.8.8", None, True),
        ("::1", None, True),
        ("::ffff:127.0.0.1", None, True),
        ("127.0.0.1", "127.0.0.1", False),  # a proxy's word, which a stranger may have put there
        ("192.168.1.5", None, False),
        (None, None, False),
    ],
)
def test_clients_on_this_machine(client, forwarded, local):
    """They have the limit of all sessions alone, unless a proxy names them."""
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    app, admission = guarded(requests_each=1, sessions_each=1, sessions=2)
    asked = session(client, headers=headers)

    statuses = {ask(app, scope(client=client, headers=headers)).status for _ in range(9)}
    assert ({200} if local else {200, 429}) == statuses
    with admission.session(asked):
        assert local == (admission.refusal(asked) is None)
        with admission.session(asked):
            assert admission.refusal(asked) is not None


@pytest.mark.parametrize(
    ("client", "forwarded", "warned"),
    [
        ("172.18.0.3", HOME, True),
        ("::ffff:127.0.0.1", HOME, True),
        (HOME, HOME, False),  # trusted: uvicorn has taken its word
        ("198.41.0.4", HOME, False),  # a stranger, not a proxy nearby
        ("172.18.0.3", None, False),
    ],
)
def test_a_proxy_that_is_not_trusted(caplog, client, forwarded, warned):
    """The host is warned once, with the address and what to set."""
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    app, _ = guarded()
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        for _ in range(3):
            ask(app, scope(client=client, headers=headers))

    assert warned == len(caplog.messages)
    assert all(client in text and "FORWARDED_ALLOW_IPS" in text for text in caplog.messages)


# Requests -----------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc")), max_size=60)


@given(STEPS, st.integers(1, 4))
def test_a_window_against_plain_loops(steps, most):
    """An event counts if and only if fewer were counted within the last minute; idle keys go."""
    now, counted = 0, []
    window = SlidingWindow(lambda: now)
    for gap, client in steps:
        now += gap
        recent = [when for when, who in counted if who == client and when > now - 60]
        wait = window.wait((client, ""), most)

        assert (len(recent) < most) == (wait == 0)
        if wait:
            assert recent[0] + 60 - now == wait
        else:
            counted.append((now, client))
        assert len(window) <= len({who for when, who in counted if when > now - 120})


def test_too_many_requests_of_one_client():
    """One sentence with the time to wait, as text or as a page; other clients are served."""
    app, admission = guarded(requests_each=3)

    assert [200, 200, 200, 429] == [ask(app, scope()).status for _ in range(4)]
    plain, page = ask(app, scope()), ask(app, scope(headers=BROWSER))
    for refused in (plain, page, ask(app, session())):
        assert 429 == refused.status
        assert "More than 3 requests" in refused.body
        assert 58 <= int(refused.headers["retry-after"]) <= 60
        assert "no-store" == refused.headers["cache-control"]
    assert plain.headers["content-type"].startswith("text/plain")
    assert page.headers["content-type"].startswith("text/html")
    assert 200 == ask(app, scope(client="203.0.113.8")).status
    assert {"requests_each": 4} == +admission.refused


@pytest.mark.parametrize("path", FILES)
def test_files_and_health_have_a_limit_of_their_own(path):
    """It is many times larger."""
    app, admission = guarded(requests_each=2)

    assert [200, 200, 429] == [ask(app, scope()).status for _ in range(3)]
    found = Counter(ask(app, scope(path)).status for _ in range(2 * FILES_A_REQUEST + 3))
    assert {200: 2 * FILES_A_REQUEST, 429: 3} == found
    assert 3 == admission.refused["files_each"]


@pytest.mark.parametrize("path", ["/staticfiles", "/helix", "/_stcore/upload_file/a/b", "/a/b/c"])
def test_all_else_is_a_request(path):
    """Whatever it may be."""
    app, _ = guarded(requests_each=1)

    assert [200, 429] == [ask(app, scope(path)).status for _ in range(2)]


# Sessions -----------------------------------------------------------------------------------------

ACTS = st.lists(
    st.one_of(st.sampled_from("abc"), st.integers(0, 9)), max_size=60
)  # a client who opens a session, or the number of a session that ends


@given(ACTS, st.integers(0, 5), st.integers(0, 3))
def test_sessions_against_a_plain_list(acts, most, each):
    """Never above the limits, and nobody is refused while there is room; 0 is no limit."""
    _, admission = guarded(sessions=most, sessions_each=each, requests_each=0)
    inside = []
    for act in acts:
        if isinstance(act, int):
            if act < len(inside):
                inside.pop(act)[1].close()
        else:
            own = sum(client == act for client, _ in inside)
            full = (most and len(inside) >= most) or (each and own >= each)
            assert bool(full) == (admission.refusal(session(act)) is not None)
            if not full:
                opened = contextlib.ExitStack()
                opened.enter_context(admission.session(session(act)))
                inside.append((act, opened))
        assert len(inside) == admission.sessions
    for _, opened in inside:
        opened.close()

    assert 0 == admission.sessions


async def leaves(asked, receive, send):
    """A session that ends as its reader leaves."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def fails(asked, receive, send):
    """A session that ends by a fault."""
    await leaves(asked, receive, send)
    raise RuntimeError("a fault")


async def closes(asked, receive, send):
    """A session that the server turns away."""
    await send({"type": "websocket.close", "code": 1008})


@pytest.mark.parametrize(("app", "fault"), [(leaves, None), (fails, RuntimeError), (closes, None)])
def test_a_session_that_ends_frees_its_place(app, fault):
    """Whether its reader leaves, the server closes it or a fault ends it."""
    app, admission = guarded(app, sessions=1)
    for _ in range(3):
        with pytest.raises(fault) if fault else contextlib.nullcontext():
            ask(app, session(), {"type": "websocket.disconnect", "code": 1001})
        assert 0 == admission.sessions
    assert 0 == admission.refused.total()


def test_a_session_that_is_cancelled_frees_its_place():
    """As when the server is stopped; meanwhile nobody else gets in."""
    app, admission = guarded(leaves, sessions=1)

    async def see():
        wire = Wire([{"type": "websocket.connect"}])
        open_one = asyncio.create_task(app(session(), wire.receive, wire.send))
        while not wire.sent:
            await asyncio.sleep(0)
        other = Wire([{"type": "websocket.connect"}])
        await app(session("203.0.113.8"), other.receive, other.send)
        open_one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await open_one
        return other

    other = run_alone(see())

    assert (503, "30") == (other.status, other.headers["retry-after"])
    assert other.body.startswith("This server is full: 1 page is open")
    assert {"sessions": 1} == +admission.refused
    assert 0 == admission.sessions


def test_too_many_sessions_of_one_client():
    """The sentence says that closing a page helps."""
    app, admission = guarded(leaves, sessions_each=2)
    with admission.session(session()), admission.session(session()):
        refused = ask(app, session())

    assert 429 == refused.status
    assert refused.body.startswith("2 pages are open from your address")
    assert {"sessions_each": 1} == +admission.refused


def test_a_page_is_refused_where_its_session_would_be():
    """A reader sees the sentence in place of a page that can never be filled.

    A page that is reloaded is served, since its session is open until the new one arrives.
    """
    app, admission = guarded(sessions=1)
    with admission.session(session()):
        page = ask(app, scope("/helix", headers=BROWSER))
        assert 503 == page.status
        assert "This server is full" in page.body
        assert 200 == ask(app, scope("/helix", headers=RELOAD)).status
        assert 503 == ask(app, scope("/helix", client="203.0.113.8", headers=RELOAD)).status
        for path in FILES:
            assert 200 == ask(app, scope(path, headers=BROWSER)).status
        assert 200 == ask(app, scope("/helix")).status  # a program that asks for no page
    assert 200 == ask(app, scope("/helix", headers=BROWSER)).status
