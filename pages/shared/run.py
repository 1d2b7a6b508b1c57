"""What one run of a page gathers until it is drawn: begun in ``app.py``."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from streamlit.delta_generator import DeltaGenerator

from poskernel_core.common.result import Result
from poskernel_core.engine.job import Job


@dataclass(frozen=True)
class Open:
    """The card that is being drawn: its result, its title, its height, the grids of heads in it."""

    result: Result
    title: str
    height: int
    grids: list[Callable[[], dict[str, Any]]] = field(default_factory=list)


@dataclass
class Frame:
    """The card that the address asks for, where it is drawn, and what has been met so far."""

    asked: str
    waiting: Any
    place: Any
    waits: bool = False
    names: dict[str, None] = field(default_factory=dict)


@dataclass
class Run:
    """What is known of the page so far.

    Attributes:
        said: the errors shown, each once.
        forming: the jobs whose results are shown while they form, by key.
        figures: the anchor and title of every figure.
        findings: what figures are found to show, each said once.
        card: the card that is being drawn.
        frame: what is drawn alone, in an embed.
        beside: the place for the sidebar's grid, where the page has a large one.
    """

    said: set[str] = field(default_factory=set)
    forming: dict[str, Job] = field(default_factory=dict)
    figures: list[tuple[str, str]] = field(default_factory=list)
    findings: set[str] = field(default_factory=set)
    card: Open | None = None
    frame: Frame | None = None
    beside: DeltaGenerator | None = None


_RUN: ContextVar[Run] = ContextVar("run of a page")


def begin() -> None:
    """Begin a page."""
    _RUN.set(Run())


def current() -> Run:
    """Return the run in progress; a fragment that is drawn again begins one."""
    run = _RUN.get(None)
    if run is None:
        _RUN.set(run := Run())
    return run
