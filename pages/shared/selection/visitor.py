"""Who is asking: one browser session, and the person behind it; and whether it is still there."""

from typing import Any

from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from poskernel_core.common.addresses import network_of, parsed
from poskernel_core.common.settings import settings


def visitor() -> str:
    """Return the number of the session whose page is being drawn; empty where there is none."""
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.session_id


def present(visitor: str) -> bool:
    """Tell whether a session still has its page open."""
    return not runtime.exists() or runtime.get_instance().is_active_session(visitor)


def person(visitor: str) -> str:
    """Return who is behind a session, as far as that is known: whose turn and bounds they are.

    A user who signed in at the proxy (``POSKERNEL_USER_HEADER``), else the client's address, else
    the session itself: behind a proxy on this machine that names no client, and where the reader
    sits at this machine.
    """
    client = runtime.get_instance().get_client(visitor) if runtime.exists() else None
    context: Any = getattr(client, "client_context", None)
    if context is None:
        return visitor
    header = settings().user_header
    if header:
        named = [value for name, value in context.headers if name.lower() == header.lower()]
        if len(named) == 1 and named[0].strip():  # of two, one is not the proxy's
            return f"user {named[0].strip()}"
    return _by_address(context.remote_ip) or visitor


def _by_address(client: str | None) -> str | None:
    """Return an address as it stands for a person; None for this machine and for none."""
    address = parsed(client or "")
    if address is None or address.is_loopback:
        return None
    return f"address {network_of(str(address))}"
