"""What the host of a server lets its clients do."""

import streamlit as st

from poskernel_core.common.addresses import THIS_MACHINE
from poskernel_core.common.settings import settings
from poskernel_core.models import catalog


def allowed(setting: bool | None) -> bool:
    """Tell whether clients may do something: as the host says, else if the server is local.

    It is local if it listens on this machine alone, and no proxy stands before it.
    """
    if setting is not None:
        return setting
    proxied = settings().forwarded_allow_ips or "X-Forwarded-For" in st.context.headers
    return st.get_option("server.address") in THIS_MACHINE and not proxied


def any_model() -> bool:
    """Tell whether clients may type any name of a model."""
    return allowed(settings().allow_any_model)


def offered(name: str) -> bool:
    """Tell whether a link may name a model: one of the list, or one that is on this machine."""
    return catalog.is_listed(name) or (any_model() and not catalog.to_download([name]))
