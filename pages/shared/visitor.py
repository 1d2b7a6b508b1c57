"""Who is asking: one browser session; and whether it is still there."""

from __future__ import annotations

from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

__all__ = ["present", "visitor"]


def visitor() -> str:
    """Return the number of the session whose page is being drawn; empty where there is none."""
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.session_id


def present(visitor: str) -> bool:
    """Tell whether a session still has its page open."""
    return not runtime.exists() or runtime.get_instance().is_active_session(visitor)
