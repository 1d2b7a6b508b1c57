"""The pages of the app, in the order of the navigation.

A page is a folder, named as its address; its ``page.py`` has ``PLACE`` and ``page(selection)``.
"""

from importlib import import_module
from types import ModuleType

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


def module_of(name: str) -> ModuleType:
    """Return the module that draws a page."""
    return import_module(f"pages.{name}.page")


def page_showing(question: str) -> str:
    """Return the name of the page that declares a question, or of the landing page if none does."""
    return next((name for name in NAMES if question in module_of(name).PLACE.questions), FIRST)
