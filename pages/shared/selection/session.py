"""The browser session that asks, whether its page is still open, and who is behind it."""

from collections.abc import Callable, Iterable
from typing import Any

from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from poskernel_core.common.addresses import network_of, parsed
from poskernel_core.common.settings import settings

ELSEWHERE: dict[str, tuple[Callable[[str], bool], Callable[[str], str]]] = {}
"""Clients that are no sessions, by how their names begin: who is present, and whose they are."""


def session_id() -> str:
    """Return the session whose page is being drawn; empty where there is none."""
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.session_id


def present(session: str) -> bool:
    """Tell whether a session still has its page open, or a program still asks."""
    for begin, (is_there, _) in ELSEWHERE.items():
        if session.startswith(begin):
            return is_there(session)
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


def person(session: str) -> str:
    """Return whose turns and quotas a session uses.

    The user who signed in at the proxy (``POSKERNEL_USER_HEADER``), else the client's address. For
    a reader on this machine, or behind a local proxy that names no client, it is the session
    itself.
    """
    for begin, (_, whose) in ELSEWHERE.items():
        if session.startswith(begin):
            return whose(session)
    client = runtime.get_instance().get_client(session) if runtime.exists() else None
    context: Any = getattr(client, "client_context", None)
    return session if context is None else behind(session, context.remote_ip, context.headers)


def behind(client: str, address: str | None, headers: Iterable[tuple[str, str]]) -> str:
    """Return the person behind a client at an address, by the headers of its request."""
    header = settings().user_header
    if header:
        named = [value for name, value in headers if name.lower() == header.lower()]
        if len(named) == 1 and named[0].strip():  # if there are two, one is not from the proxy
            return f"user {named[0].strip()}"
    ip_address = parsed(address or "")
    if ip_address is None or ip_address.is_loopback:
        return client
    return f"address {network_of(str(ip_address))}"
