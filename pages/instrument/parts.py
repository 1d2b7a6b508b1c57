"""The parts of the page that the browser draws and that share one state.

All of them have the same script: Streamlit imports equal scripts once, so they are one module, and
``data["part"]`` says which part is drawn.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages.shared.look.component import component, module

HERE = Path(__file__).parent
SCRIPT = module(*(HERE / f"{name}.js" for name in ("state", "grid", "curve", "find")))


def _part(name: str, sheet: str = "find", html: str = "") -> Callable[..., Any]:
    drawn = component(f"pk-{name}", html, SCRIPT, HERE / f"{sheet}.css")

    def draw(key: str, data: dict[str, Any], **more: Any) -> Any:
        return drawn(key=key, data={"part": name} | data, **more)

    return draw


draw_state = _part("state")
"""Tell the browser what is chosen, and where the numbers of all heads are."""
draw_told = _part("told")
"""Tell the browser what the figures have been drawn for; the last part of a run."""
draw_grid = _part("grid", "grid", "<div class='head-grid'></div>")
draw_curve = _part("curve", "curve", "<div class='curve'></div>")
draw_rest = _part("rest", html="<div class='rest'>The rest of the page is on its way.</div>")
"""Ask for the rest of the page when the reader comes near it."""
draw_find = _part("find", "find", "<div class='find'></div>")
draw_position = _part("position", "find", "<div class='position'></div>")
