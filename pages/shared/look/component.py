"""Components of ours in the browser: one module each, which begins with what all of them share.

Streamlit sends a component's script with each of its elements, in every message. So a script is
served under the hash of its text, where the browser keeps it, and an element has its address only.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from poskernel_core.export.matrix import BROWSER, scoped

SHARED = Path(str(BROWSER / "parts.js"))
SCRIPTS: dict[str, str] = {}
"""What is served, by file name."""


def served(js: str) -> str:
    """Return a script, of more than one line as Streamlit asks, that stands for ``js``."""
    name = f"{hashlib.sha256(js.encode()).hexdigest()[:16]}.js"
    SCRIPTS[name] = js
    return (
        f'const address = new URL("parts/{name}", document.baseURI);\n'
        "export default (await import(address)).default;\n"
    )


def module(script: Path, *parts: Path) -> str:
    """Return a script after the shared one; each of its ``parts`` has a scope of its own."""
    text = "\n".join(file.read_text("utf-8") for file in (SHARED, script))
    return text + "".join(f"{{\n{file.read_text('utf-8')}}}\n" for file in parts)


def component(name: str, html: str, js: str, sheet: Path) -> Callable[..., Any]:
    """Return a component with the shared style sheet and its own; ``name`` is unique in the app."""
    css = "\n".join(file.read_text("utf-8") for file in (SHARED.with_suffix(".css"), sheet))
    return st.components.v2.component(name, html=html, css=css, js=served(js))


def of_matrix(name: str, html: str) -> Callable[..., Any]:
    """Return a part of what ``pk.matrix`` draws, as a component."""
    js = f"{SHARED.read_text('utf-8')}\n{scoped(name)}\nexport default {name};\n"
    return component(name, html, js, SHARED.with_name(f"{name}.css"))


def room(key: str, height: int) -> Any:
    """Return a container for what the browser draws later under ``key``.

    It has that height, to 100 pixels, at once, so that nothing below it moves.
    """
    return st.container(key=f"tall-{min(9, height // 100)}-{key}")
