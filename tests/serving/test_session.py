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


@pytest.mark.parametrize(
    ("address", "person"),
    [
        ("203.0.113.7", "address 203.0.113.7"),
        ("::ffff:203.0.113.7", "address 203.0.113.7"),
        ("2001:db8:1:2:3::4", "address 2001:db8:1:2::/64"),
        ("fe80::1%eth0", "address fe80::/64"),
        ("127.3.2.1", "s"),
        ("::ffff:127.0.0.1", "s"),
        ("testclient", "s"),
        (None, "s"),
    ],
)
def test_by_address(client, address, person):
    """A household of IPv6 has 64 bits to itself; this machine is many people, or one of its own."""
    client.remote_ip = address

    assert person == session.person("s")
    assert "gone" == session.person("gone")  # a session that has ended stands for itself


@pytest.mark.parametrize(
    ("values", "named"),
    [([" anna "], True), ([], False), ([""], False), (["  "], False), (["anna", "ben"], False)],
)
def test_by_header(client, monkeypatch, values, named):
    client.headers = [(HEADER.lower(), value) for value in values]
    assert "address 203.0.113.7" == session.person("s")

    monkeypatch.setenv("POSKERNEL_USER_HEADER", HEADER)
    assert ("user anna" if named else "address 203.0.113.7") == session.person("s")
