"""What every page of a bundled model asks for at its default settings, recorded as it asks."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from streamlit.testing.v1 import AppTest

from poskernel_core.analyses.base import Result
from poskernel_core.compute import canonical
from poskernel_core.config import Request
from poskernel_core.job import Job

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 4 * 3600
LEDGER = {"part": "Reproduction ledger", "compute": "true"}
"""What is chosen on the methods page, so that it asks for something."""

Answer = Callable[[Request], Result | Job]


class PageFailed(Exception):
    """A page showed an error."""


def page_scripts() -> list[str]:
    """The pages of the app, as paths from its root."""
    found = sorted((ROOT / "pages").rglob("*.py"))
    return [str(file.relative_to(ROOT)) for file in found if "parts" not in file.parts]


def visit_all(model: str, answer: Answer) -> Iterator[tuple[str, dict[str, Request]]]:
    """Open every page of a model; yield its path, and by their keys the requests it made.

    `answer` is what a page gets for a request. An answer that takes its time holds the page up.

    Raises:
        PageFailed: a page showed an error.
    """
    for script in page_scripts():
        yield script, visit(model, script, answer)


def visit(model: str, script: str, answer: Answer) -> dict[str, Request]:
    """Open one page; return the requests that it made, by their keys."""
    from pages.parts import results

    asked: dict[str, Request] = {}

    def ask(request: Request) -> Result | Job:
        found = answer(request)
        settled = canonical(request)
        asked[settled.key] = settled
        return found

    kept, results.ask = results.ask, ask
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LONGEST)
        app.query_params["model"] = model
        for name, value in LEDGER.items() if "methods" in script else ():
            app.query_params[name] = value
        app.run()
        asked.clear()  # the landing page came first
        app.switch_page(script).run()
    finally:
        results.ask = kept
        os.chdir(here)
    shown = [each.value for each in (*app.exception, *app.error)]
    if shown:
        raise PageFailed(f"{script} of {model}: {shown[0]}")
    return asked
