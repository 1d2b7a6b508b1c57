"""Questions and pages of other installed packages, found by their entry points.

A package offers modules with questions under ``poskernel.analyses``, and modules that draw a page
under ``poskernel.pages``. What cannot be loaded, or has a name that is taken, is left out; the
reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

QUESTIONS, PAGES = "poskernel.analyses", "poskernel.pages"


@dataclass(frozen=True)
class Plugin:
    """What another package offers.

    Attributes:
        group: ``QUESTIONS`` or ``PAGES``.
        name: its name in the package.
        package: name and version of the package.
        gives: the names of the questions, or the address of the page.
        problem: why it was left out; empty if it was not.
    """

    group: str
    name: str
    package: str
    gives: tuple[str, ...] = ()
    problem: str = ""


PLUGINS: list[Plugin] = []
"""All that was found so far, in the order in which it was loaded."""


def load(group: str, take: Callable[[Any, Any], Iterable[str]]) -> None:
    """Load all entry points of a group, and hand each to ``take``.

    ``take`` is given the entry point and what it names; it returns the names under which that is
    known from now on, and raises ValueError if it does not take it. The entry point is one of the
    backport ``importlib_metadata`` as soon as anything imports that. Whatever another package
    raises leaves out that package alone.
    """
    for entry in sorted(entry_points(group=group), key=lambda point: (_package(point), point.name)):
        try:
            gives, problem = tuple(take(entry, entry.load())), ""
        except (Exception, SystemExit) as error:
            gives, problem = (), f"{type(error).__name__}: {error}"
        PLUGINS.append(Plugin(group, entry.name, _package(entry), gives, problem))


def package_of(question: str) -> str:
    """Return name and version of the package that a question comes from; empty if it is ours."""
    packages = (
        plugin.package
        for plugin in PLUGINS
        if plugin.group == QUESTIONS and question in plugin.gives
    )
    return next(packages, "")


def _package(entry: Any) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
