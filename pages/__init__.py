"""The pages of the app, in the order of the navigation.

A page is a folder, named as its address; its ``page.py`` has ``PLACE`` and ``page(selection)``.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

from poskernel_core.common import plugins

SECTIONS = {
    "Heads": ("etc_heatmap", "explore", "compare", "over_training"),
    "One head": ("head", "positional_kernels", "previous_token", "contextual", "own_text"),
    "Positions": ("helix", "rotary_spectrum", "position_sources"),
    "Experiments": (
        "interventions",
        "induction_recency",
        "position_vs_token",
        "contextual_neurons",
    ),
    "Methods": ("methods",),
}
NAMES = tuple(name for names in SECTIONS.values() for name in names)
FIRST = NAMES[0]
"""The landing page, with the grid of all heads."""

_ADDED: dict[str, ModuleType] = {}


def module_of(name: str) -> ModuleType:
    """Return the module that draws a page."""
    return _ADDED.get(name) or import_module(f"pages.{name}.page")


def add_page(entry: Any, module: ModuleType) -> tuple[str]:
    """Add a page of another package, under the name of its entry point.

    Raises:
        ValueError: it is not a page, or its name is taken.
    """
    if not hasattr(module, "PLACE") or not callable(getattr(module, "page", None)):
        raise ValueError(f"{entry.value} has no PLACE, or no function page(selection)")
    if entry.name in NAMES or entry.name in _ADDED:
        raise ValueError(f"the name {entry.name} is taken: choose another")
    _ADDED[entry.name] = module
    return (entry.name,)


def page_showing(question: str) -> str:
    """Return the name of the page that declares a question, or of the landing page if none does."""
    return next((name for name in NAMES if question in module_of(name).PLACE.questions), FIRST)


plugins.load(plugins.PAGES, add_page)
if _ADDED:
    SECTIONS["Plugins"] = tuple(_ADDED)
    NAMES += tuple(_ADDED)
