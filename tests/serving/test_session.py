"""Who is behind a session: a user whom the proxy names, else an address, else the session."""

from types import SimpleNamespace

import pytest

from pages.shared.selection import session

HEADER = "X-Forwarded-User"


@pytest.fixture
def client(monkeypatch):
    """The client of a server's only session, ``s``: address and headers."""
    context = SimpleNamespace(remote_ip="203.0.113.7", headers=[])
    sessions = {"s": SimpleNamespace(client_context=context)}
    runtime = SimpleNamespace(get_client=sessions.get)
    monkeypatch.setattr(session.runtime, "exists", lambda: True)
    monkeypatch.setattr(session.runtime, "get_instance", lambda: runtime)
    monkeypatch.delenv("POSKERNEL_USER_HEADER", raising=False)
    return context


def test_by_address(client):
    """A household of IPv6 has 64 bits to itself; this machine is many people, or one of its own."""
    for client.remote_ip, person in (
        ("203.0.113.7", "address 203.0.113.7"),
        ("::ffff:203.0.113.7", "address 203.0.113.7"),
        ("2001:db8:1:2:3::4", "address 2001:db8:1:2::/64"),
        ("fe80::1%eth0", "address fe80::/64"),
        *((own, "s") for own in ("127.3.2.1", "::ffff:127.0.0.1", "testclient", None)),
    ):
        assert person == session.person("s")
        assert "gone" == session.person("gone")  # a session that has ended stands for itself


def test_by_header(client, monkeypatch):
    for values in ([" anna "], [], [""], ["  "], ["anna", "ben"]):
        client.headers = [(HEADER.lower(), value) for value in values]
        monkeypatch.delenv("POSKERNEL_USER_HEADER", raising=False)
        assert "address 203.0.113.7" == session.person("s")
        monkeypatch.setenv("POSKERNEL_USER_HEADER", HEADER)
        named = "user anna" if values == [" anna "] else "address 203.0.113.7"
        assert named == session.person("s")
