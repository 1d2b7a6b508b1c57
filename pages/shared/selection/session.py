"""The browser session that asks, whether its page is still open, and who is behind it."""

from typing import Any

from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from poskernel_core.common.addresses import network_of, parsed
from poskernel_core.common.settings import settings


def session_id() -> str:
    """Return the session whose page is being drawn; empty where there is none."""
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.session_id


def present(session: str) -> bool:
    """Tell whether a session still has its page open."""
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


def person(session: str) -> str:
    """Return whose turns and quotas a session uses.

    The user who signed in at the proxy (``POSKERNEL_USER_HEADER``), else the client's address. For
    a reader on this machine, or behind a local proxy that names no client, it is the session
    itself.
    """
    client = runtime.get_instance().get_client(session) if runtime.exists() else None
    context: Any = getattr(client, "client_context", None)
    if context is None:
        return session
    header = settings().user_header
    if header:
        named = [value for name, value in context.headers if name.lower() == header.lower()]
        if len(named) == 1 and named[0].strip():  # if there are two, one is not from the proxy
            return f"user {named[0].strip()}"
    address = parsed(context.remote_ip or "")
    if address is None or address.is_loopback:
        return session
    return f"address {network_of(str(address))}"
