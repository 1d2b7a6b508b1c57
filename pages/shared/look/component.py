"""A component of ours in the browser: the files that all components share, then its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

SHARED = Path(__file__).with_name("parts")
"""The shared style sheet and script, put before the component's own in one file."""


def component(name: str, folder: Path, file: str, html: str) -> Callable[..., Any]:
    """Return a component with the ``.css`` and ``.js`` of that name in a folder.

    ``name`` is unique in the app.
    """

    def read(suffix: str) -> str:
        own = (folder / file).with_suffix(suffix)
        return "\n".join(each.read_text("utf-8") for each in (SHARED.with_suffix(suffix), own))

    return st.components.v2.component(name, html=html, css=read(".css"), js=read(".js"))
