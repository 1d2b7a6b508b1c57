"""Who is let in: sessions and requests of one visitor and of all, counted however they end."""

import asyncio
import contextlib
import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.limits import FILES_A_REQUEST, Bounds, Doors, Limits
from serving.rates import Rate
from serving.visitors import address_of, is_local, shortened, unknown_proxy, visitor_of
from tests.support.alone import run_alone
from tests.support.asgi import STREAM, Wire, ask, scope

HOME = "203.0.113.7"
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
RELOAD = {**BROWSER, "Cookie": "_streamlit_xsrf=2|x", "Cache-Control": "max-age=0"}


async def fine(asked, receive, send):
    """An app that answers every request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


def guarded(app=fine, **bounds):
    """An app behind doors, and the doors."""
    doors = Doors(Bounds(**bounds))
    return Limits(app, doors), doors


def session(client=HOME, **more):
    """A wish to open a web socket."""
    return scope(STREAM, "websocket", client, **more)


# Visitors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "address", "visitor", "short"),
    [
        ("203.0.113.77", "203.0.113.77", "203.0.113.77", "203.0.113.0"),
        ("::ffff:203.0.113.77", "203.0.113.77", "203.0.113.77", "203.0.113.0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::"),
        ("2001:DB8:1:2::9", "2001:db8:1:2::9", "2001:db8:1:2::/64", "2001:db8:1::"),
        ("fe80::1%eth0", "fe80::1", "fe80::/64", "fe80::"),
        ("_hidden" * 20, ("_hidden" * 20)[:45], ("_hidden" * 20)[:45], "unknown"),
        ("", "unknown", "unknown", "unknown"),
        (None, "unknown", "unknown", "unknown"),
    ],
)
def test_who_is_one_visitor(client, address, visitor, short):
    """An IPv4 address, an IPv6 network of 64 bits; whatever a proxy makes up is cut."""
    asked = scope(client=client)

    assert address == address_of(asked)
    assert visitor == visitor_of(asked)
    assert short == shortened(address)


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
def test_who_is_on_this_machine(client, forwarded, local):
    """Loopback, unless a proxy says so."""
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}

    assert local == is_local(scope(client=client, headers=headers))


@pytest.mark.parametrize(
    ("client", "forwarded", "found"),
    [
        ("172.18.0.3", "203.0.113.7", "172.18.0.3"),
        ("::ffff:127.0.0.1", "203.0.113.7", "::ffff:127.0.0.1"),
        ("203.0.113.7", "203.0.113.7", None),  # trusted: uvicorn has taken its word
        ("198.41.0.4", "203.0.113.7", None),  # from afar
        ("172.18.0.3", None, None),
    ],
)
def test_a_proxy_that_is_not_trusted(client, forwarded, found):
    """A neighbour that names somebody else, and is not believed."""
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}

    assert found == unknown_proxy(scope(client=client, headers=headers))


def test_the_host_is_told_once_of_a_proxy_that_is_not_trusted(caplog):
    """With the address, and what to set."""
    app, _ = guarded()
    for _ in range(3):
        with caplog.at_level(logging.WARNING, "uvicorn.error"):
            ask(app, scope(client="172.18.0.3", headers={"X-Forwarded-For": HOME}))

    (told,) = caplog.messages
    assert "172.18.0.3" in told
    assert "FORWARDED_ALLOW_IPS" in told


# Rates --------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc")), max_size=60)


@given(STEPS, st.integers(1, 4))
def test_a_rate_against_plain_loops(steps, most):
    """Let in if and only if fewer than so many were let in during the last minute; then counted."""
    now, let_in = 0, []
    rate = Rate(most, 60, lambda: now)
    for gap, visitor in steps:
        now += gap
        recent = [when for when, who in let_in if who == visitor and when > now - 60]
        wait = rate.wait(visitor)

        assert (len(recent) < most) == (wait == 0)
        if wait:
            assert recent[0] + 60 - now == wait
        else:
            let_in.append((now, visitor))
        assert {who for when, who in let_in if when > now - 60} == set(rate._seen)


def test_a_rate_of_nothing_is_no_limit():
    """And nobody is remembered for it."""
    rate = Rate(0)

    assert [0.0] * 9 == [rate.wait("a") for _ in range(9)]
    assert 0 == len(rate)


# Requests -----------------------------------------------------------------------------------------


def test_too_many_requests_of_one_visitor():
    """One sentence with the time to wait, as text or as a page; others are not concerned."""
    app, doors = guarded(requests_each=3)

    assert [200, 200, 200, 429] == [ask(app, scope()).status for _ in range(4)]
    plain = ask(app, scope())
    page = ask(app, scope(headers=BROWSER))
    socket = ask(app, session())

    sentence = "More than 3 requests came from your address within a minute: try again in "
    for refused in (plain, page, socket):
        assert 429 == refused.status
        assert sentence in refused.body
        assert 58 <= int(refused.headers["retry-after"]) <= 60
        assert "no-store" == refused.headers["cache-control"]
    assert plain.body.startswith(sentence)
    assert plain.headers["content-type"].startswith("text/plain")
    assert page.headers["content-type"].startswith("text/html")
    assert 200 == ask(app, scope(client="203.0.113.8")).status
    assert 4 == doors.refused["requests_each"]
    assert 4 == doors.refused.total()


FILES = [
    "/static/js/index.x.js",
    "/media/ab.png",
    "/component/c/d.js",
    "/_stcore/bidi-components/x/y.js",
    "/health",
    "/_stcore/health",
]


@pytest.mark.parametrize("path", FILES)
def test_files_and_health_do_not_count_with_requests(path):
    """They have an allowance of their own, many times larger; both have an end."""
    app, doors = guarded(requests_each=2)

    assert [200, 200, 429] == [ask(app, scope()).status for _ in range(3)]
    found = Counter(ask(app, scope(path)).status for _ in range(2 * FILES_A_REQUEST + 3))
    assert {200: 2 * FILES_A_REQUEST, 429: 3} == found
    assert 3 == doors.refused["files_each"]


@pytest.mark.parametrize("path", ["/staticfiles", "/helix", "/_stcore/upload_file/a/b", "/a/b/c"])
def test_all_else_is_a_request(path):
    """Whatever it may be."""
    app, _ = guarded(requests_each=1)

    assert [200, 429] == [ask(app, scope(path)).status for _ in range(2)]


def test_this_machine_is_bound_by_the_room_alone():
    """Who runs the server on a laptop, and the trials, ask as often as they like."""
    app, doors = guarded(requests_each=1, sessions_each=1, sessions=2)

    assert {200} == {ask(app, scope(client="127.0.0.1")).status for _ in range(9)}
    with doors.session(session("127.0.0.1")):
        assert doors.refusal(session("127.0.0.1")) is None
        with doors.session(session("127.0.0.1")):
            assert "sessions" == doors.refusal(session("127.0.0.1")).limit


def test_no_limit_at_all():
    """A host who sets every bound to 0."""
    app, doors = guarded(sessions=0, sessions_each=0, requests_each=0)
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(doors.session(session()))
            assert doors.refusal(session()) is None
        assert 200 == ask(app, scope()).status


# Sessions -----------------------------------------------------------------------------------------

ACTS = st.lists(
    st.one_of(st.sampled_from("abc"), st.integers(0, 9)), max_size=60
)  # a visitor who wants to come in, or the number of a session that ends


@given(ACTS, st.integers(1, 5), st.integers(1, 3))
def test_sessions_against_a_plain_list(acts, most, each):
    """Never above the bounds, never below none, and nobody is refused while there is room."""
    doors = Doors(Bounds(most, each, 0))
    inside = []
    for act in acts:
        if isinstance(act, int):
            if act < len(inside):
                _, opened = inside.pop(act)
                opened.__exit__(None, None, None)
        else:
            own = sum(visitor == act for visitor, _ in inside)
            refused = doors.refusal(session(act))
            assert (len(inside) >= most or own >= each) == (refused is not None)
            if refused is None:
                opened = doors.session(session(act))
                opened.__enter__()
                inside.append((act, opened))
        assert len(inside) == doors.sessions <= most
    for _, opened in inside:
        opened.__exit__(None, None, None)

    assert 0 == doors.sessions
    assert not doors._open


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
def test_a_session_that_ends_gives_its_place_back(app, fault):
    """Whether its reader leaves, the server closes it or a fault ends it."""
    around, doors = guarded(app, sessions=1)
    for _ in range(3):
        with pytest.raises(fault) if fault else contextlib.nullcontext():
            ask(around, session(), {"type": "websocket.disconnect", "code": 1001})
        assert 0 == doors.sessions
    assert 0 == doors.refused.total()


def test_a_session_that_is_cancelled_gives_its_place_back():
    """As when the server is stopped; meanwhile nobody else gets in."""
    around, doors = guarded(leaves, sessions=1)

    async def see():
        wire = Wire([{"type": "websocket.connect"}])
        open_one = asyncio.create_task(around(session(), wire.receive, wire.send))
        while not wire.sent:
            await asyncio.sleep(0)
        during = doors.sessions
        other = Wire([{"type": "websocket.connect"}])
        await around(session("203.0.113.8"), other.receive, other.send)
        open_one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await open_one
        return during, other

    during, other = run_alone(see())

    assert 1 == during
    assert 503 == other.status
    assert other.body == (
        "This server is full: 1 page is open, and it takes no more. Try again in 30 seconds.\n"
    )
    assert 0 == doors.sessions
    assert doors.refusal(session()) is None


def test_too_many_sessions_of_one_visitor():
    """The other half of an IPv6 address makes nobody another visitor."""
    around, doors = guarded(leaves, sessions_each=2)
    with doors.session(session("2001:db8::1")), doors.session(session("2001:db8::2")):
        refused = ask(around, session("2001:db8::3"))
        assert doors.refusal(session("2001:db8:0:1::3")) is None

    assert 429 == refused.status
    assert refused.body == (
        "2 pages are open from your address, and this server takes no more from one: close one, or "
        "try again in 30 seconds.\n"
    )
    assert {"sessions_each": 1} == +doors.refused
    assert doors.refusal(session("2001:db8::3")) is None


def test_a_server_without_the_extension_closes_the_socket():
    """Before it is accepted, with the code for: try again later."""
    around, doors = guarded(leaves, sessions=1)
    with doors.session(session()):
        (close,) = ask(around, session(extensions={})).sent

    assert ("websocket.close", 1013) == (close["type"], close["code"])
    assert close["reason"].startswith("This server is full")
    assert len(close["reason"].encode()) <= 123


def test_a_page_is_refused_where_its_session_would_be():
    """A reader sees the sentence in place of a page that can never be filled.

    One who reloads a page is let through, since its session is open until the new one arrives.
    """
    app, doors = guarded(sessions=1)
    with doors.session(session()):
        page = ask(app, scope("/helix", headers=BROWSER))
        assert 503 == page.status
        assert "This server is full" in page.body
        assert "30" == page.headers["retry-after"]
        assert 200 == ask(app, scope("/helix", headers=RELOAD)).status
        assert 503 == ask(app, scope("/helix", client="203.0.113.8", headers=RELOAD)).status
        for path in FILES:
            assert 200 == ask(app, scope(path, headers=BROWSER)).status
        assert 200 == ask(app, scope("/helix")).status  # a program that asks for no page
    assert 200 == ask(app, scope("/helix", headers=BROWSER)).status
