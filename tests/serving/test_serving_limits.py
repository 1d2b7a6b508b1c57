"""Admission: sessions and requests of one client and of all."""

import contextlib
import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient, WebSocketDenialResponse

from poskernel_core.common.settings import Settings
from serving.admission import FILES_A_REQUEST, Admission, SlidingWindow
from tests.support.server import STREAM, scope

HOME = "203.0.113.7"
BROWSER = {"accept": "text/html,application/xhtml+xml"}
RELOAD = {**BROWSER, "cookie": "_streamlit_xsrf=2|x", "cache_control": "max-age=0"}
FILES = [
    "/static/js/index.x.js",
    "/media/ab.png",
    "/component/c/d.js",
    "/_stcore/bidi-components/x/y.js",
    "/health",
    "/_stcore/health",
]


def admission(sessions=0, sessions_each=0, requests_each=0):
    limits = {"max_sessions": sessions, "max_sessions_each": sessions_each}
    return Admission(Settings(**limits, max_requests_per_minute=requests_each))


def session(client=HOME, **headers):
    return scope(STREAM, "websocket", client, **headers)


def limit(admission, asked):
    refusal = admission.refusal(asked)
    return refusal and refusal.limit


def test_what_is_one_client():
    for one, other, same in (
        ("203.0.113.77", "203.0.113.77", True),
        ("203.0.113.77", "203.0.113.78", False),
        ("203.0.113.77", "::ffff:203.0.113.77", True),
        ("2001:db8:1:2:3:4:5:6", "2001:DB8:1:2::9", True),
        ("2001:db8:1:2::9", "2001:db8:1:3::9", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("_hidden" * 20, "_hidden" * 30, True),  # as long as an address at most
        ("", None, True),
    ):
        doors = admission(sessions_each=1)
        with doors.session(session(one)):
            assert ("sessions_each" if same else None) == limit(doors, session(other)), one


def test_clients_on_this_machine():
    """A proxy's word may have been put there by a stranger."""
    for client, headers, local in (
        *((own, {}, True) for own in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1"}, False),
        ("192.168.1.5", {}, False),
        (None, {}, False),
    ):
        asked, doors = session(client, **headers), admission(requests_each=1)
        refused = [limit(doors, asked) for _ in range(2)]
        assert [None, None if local else "requests_each"] == refused, client
        doors = admission(sessions=2, sessions_each=1)
        with doors.session(asked):
            assert (None if local else "sessions_each") == limit(doors, asked)
            with doors.session(asked):
                assert "sessions" == limit(doors, asked)


@pytest.mark.parametrize(
    ("client", "named", "warned"),
    [
        ("172.18.0.3", HOME, True),
        ("::ffff:127.0.0.1", HOME, True),
        (HOME, HOME, False),  # trusted: uvicorn has taken its word
        ("198.41.0.4", HOME, False),  # a stranger, not a proxy nearby
        ("172.18.0.3", None, False),
    ],
)
def test_a_proxy_that_is_not_trusted(caplog, client, named, warned):
    app = TestClient(admission().guard(PlainTextResponse("fine")), client=(client, 1))
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        for _ in range(3):
            app.get("/", headers={"X-Forwarded-For": named} if named else {})

    said = [each.getMessage() for each in caplog.records if each.name == "uvicorn.error"]
    assert warned == len(said)
    assert all(client in text and "FORWARDED_ALLOW_IPS" in text for text in said)


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
    doors = admission(requests_each=3)
    app = doors.guard(PlainTextResponse("fine"))
    client = TestClient(app, client=(HOME, 1))

    assert [200, 200, 200, 429] == [client.get("/").status_code for _ in range(4)]
    plain, page = client.get("/"), client.get("/", headers=BROWSER)
    with pytest.raises(WebSocketDenialResponse) as socket, client.websocket_connect(STREAM):
        pass
    for refused in (plain, page, socket.value):
        assert 429 == refused.status_code
        assert "More than 3 requests" in refused.text
        assert 50 <= int(refused.headers["retry-after"]) <= 60
        assert "no-store" == refused.headers["cache-control"]
    assert plain.headers["content-type"].startswith("text/plain")
    assert page.headers["content-type"].startswith("text/html")
    assert 200 == TestClient(app, client=("203.0.113.8", 1)).get("/").status_code
    assert {"requests_each": 4} == +doors.refused


def test_files_and_health_have_a_limit_of_their_own():
    """All else is a request."""
    for path in FILES:
        doors = admission(requests_each=2)
        assert [None, None, "requests_each"] == [limit(doors, scope()) for _ in range(3)]
        found = Counter(limit(doors, scope(path)) for _ in range(2 * FILES_A_REQUEST + 3))
        assert {None: 2 * FILES_A_REQUEST, "files_each": 3} == found
    for path in ("/staticfiles", "/helix", "/_stcore/upload_file/a/b", "/a/b/c"):
        doors = admission(requests_each=1)
        assert [None, "requests_each"] == [limit(doors, scope(path)) for _ in range(2)]


ACTS = st.lists(
    st.one_of(st.sampled_from("abc"), st.integers(0, 9)), max_size=60
)  # a client who opens a session, or the number of a session that ends


@given(ACTS, st.integers(0, 5), st.integers(0, 3))
def test_sessions_against_a_plain_list(acts, most, each):
    doors = admission(most, each)
    inside = []
    for act in acts:
        if isinstance(act, int):
            if act < len(inside):
                inside.pop(act)[1].close()
        else:
            own = sum(client == act for client, _ in inside)
            full = (most and len(inside) >= most) or (each and own >= each)
            assert bool(full) == (doors.refusal(session(act)) is not None)
            if not full:
                opened = contextlib.ExitStack()
                opened.enter_context(doors.session(session(act)))
                inside.append((act, opened))
        assert len(inside) == doors.sessions
    for _, opened in inside:
        opened.close()

    assert 0 == doors.sessions


def test_a_page_is_refused_where_its_session_would_be():
    """But one that is reloaded is served: its session is open until the new one arrives."""
    doors = admission(sessions=1)
    with doors.session(session()):
        refusal = doors.refusal(scope("/helix", **BROWSER))
        assert ("sessions", 503, 30) == (refusal.limit, refusal.status, refusal.retry_after)
        assert limit(doors, scope("/helix", **RELOAD)) is None
        assert "sessions" == limit(doors, scope("/helix", client="203.0.113.8", **RELOAD))
        assert [None] * len(FILES) == [limit(doors, scope(path, **BROWSER)) for path in FILES]
        assert limit(doors, scope("/helix")) is None  # a program that asks for no page
    assert limit(doors, scope("/helix", **BROWSER)) is None
