"""Who is behind a session: a user whom the proxy names, else an address, else the session."""

from types import SimpleNamespace

import pytest

from pages.shared.selection import visitor
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import user_header


@pytest.fixture
def sessions(monkeypatch):
    """The clients of a server's sessions: address and headers."""
    clients = {}

    class Runtime:
        def get_client(self, session):
            if session not in clients:
                return None
            address, headers = clients[session]
            context = SimpleNamespace(remote_ip=address, headers=headers)
            return SimpleNamespace(client_context=context)

    monkeypatch.setattr(visitor.runtime, "exists", lambda: True)
    monkeypatch.setattr(visitor.runtime, "get_instance", Runtime)
    monkeypatch.delenv("POSKERNEL_USER_HEADER", raising=False)
    return clients


@pytest.mark.parametrize(
    ("address", "person"),
    [
        ("203.0.113.7", "address 203.0.113.7"),
        ("::ffff:203.0.113.7", "address 203.0.113.7"),
        ("2001:db8:1:2:3::4", "address 2001:db8:1:2::/64"),
        ("fe80::1%eth0", "address fe80::/64"),
        ("127.0.0.1", "s"),
        ("127.3.2.1", "s"),
        ("::1", "s"),
        ("::ffff:127.0.0.1", "s"),
        ("testclient", "s"),
        ("", "s"),
        (None, "s"),
    ],
)
def test_by_address(sessions, address, person):
    """A household of IPv6 has 64 bits to itself; this machine is many people, or one of its own."""
    sessions["s"] = (address, [])

    assert person == visitor.person("s")


def test_by_header(sessions, monkeypatch):
    """Whatever the case of its name; only where the host has named it."""
    sessions["s"] = ("203.0.113.7", [("x-forwarded-user", " anna ")])
    assert "address 203.0.113.7" == visitor.person("s")

    monkeypatch.setenv("POSKERNEL_USER_HEADER", "X-Forwarded-User")
    assert "user anna" == visitor.person("s")


@pytest.mark.parametrize("values", [[], [""], ["  "], ["anna", "ben"]])
def test_without_one_name(sessions, monkeypatch, values):
    """Nobody has signed in, or the proxy has let a second name through: the address counts."""
    monkeypatch.setenv("POSKERNEL_USER_HEADER", "X-Forwarded-User")
    sessions["s"] = ("203.0.113.7", [("X-Forwarded-User", value) for value in values])

    assert "address 203.0.113.7" == visitor.person("s")


def test_a_session_that_has_gone(sessions):
    """It stands for itself, and so does a script that no server runs."""
    assert "gone" == visitor.person("gone")


def test_the_setting(monkeypatch):
    """The name of a header, or none."""
    for value, header in (("", None), (" ", None), (" Remote-User ", "Remote-User")):
        monkeypatch.setenv("POSKERNEL_USER_HEADER", value)
        assert header == user_header()
    for value in ("X Forwarded", "X-User:", "\u00dcser", "x" * 65):
        monkeypatch.setenv("POSKERNEL_USER_HEADER", value)
        with pytest.raises(BadRequest, match="POSKERNEL_USER_HEADER to be the name of a header"):
            user_header()
