"""Record the requests that every page of a bundled model makes at its default settings."""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import Asked, Plan, make_plan
from poskernel_core.models.catalog import locate

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 4 * 3600
LEDGER = {"part": "Reproduction ledger", "compute": "true"}
"""Settings of the methods page that make it request results."""

FIGURE = "pk-figure"
"""The part that draws a figure."""

TOO_LARGE = {"head-position-sources": 100}
"""Questions that are not shipped for models of more heads; readers request them explicitly."""

EXACT = 100
"""Heads for which costs are shipped that are all exact, instead of estimated for most."""

Answer = Callable[[Plan], Result | Job]


class PageFailed(Exception):
    """A page showed an error."""


def page_names() -> list[str]:
    from pages import NAMES

    return sorted(NAMES)


def open_page(app: AppTest, name: str) -> AppTest:
    """Run the app at a page's address; `switch_page` only supports files."""
    app._page_hash = calc_hash(name)
    return app.run()


def figures_on(app: AppTest) -> list[str]:
    parts = [each.proto for each in app.get("bidi_component")]
    names = [each.id.partition("-figure-")[2] for each in parts if each.component_name == FIGURE]
    return [*filter(None, names)]


def visit_all(
    model: str, answer: Answer, *, weights: bool = True
) -> Iterator[tuple[str, dict[str, Request]]]:
    """Open every page of a model; yield its address and its requests by key.

    Without `weights`, those that need them are left out: on a server that lacks them they show
    another model.

    `answer` computes the result of a request, and the page waits for it. Buttons that compute count
    as pressed, but for questions that are never precomputed. A composition is recorded
    as its parts; parts that are not :func:`precomputed` count as missing. Some pages show another
    model instead. Requests about that model are left out, and so is a page that makes only such
    requests.
    """
    for name in page_names():
        if not weights and import_module(f"pages.{name}.page").PLACE.needs == "weights":
            continue
        asked = visit(model, name, answer)
        own = {key: each for key, each in asked.items() if each.run.model.name == model}
        if own or not asked:
            yield name, own


def precomputed(plan: Plan) -> bool:
    """Whether `precompute` computes the answer: only such parts of compositions are shipped."""
    return plan.question.precomputed in ("always", "experiments")


def at_a_button(plan: Plan, heads: int) -> bool:
    """Whether what a button computes is shipped for a model of so many heads."""
    return plan.question.precomputed != "never" and heads <= too_large(plan, heads)


def too_large(plan: Plan, heads: int) -> int:
    if getattr(plan.params, "exact", "") == "all":
        return EXACT
    return TOO_LARGE.get(plan.question.name, heads)


def visit(model: str, name: str, answer: Answer) -> dict[str, Request]:
    from pages.shared.jobs import results

    def missing(*part: Any) -> list[str]:
        return [name for name, each in results.plan(*part).parts.items() if not precomputed(each)]

    asked: dict[str, Request] = {}

    def ask(request: Asked, looks_at: int | None = None) -> Result | Job:
        asking = make_plan(request)
        found = answer(asking)
        for part in asking.parts.values() or [asking]:
            asked[part.key] = part.request
        return found

    kept = results.ask, results.missing, Engine.ready
    results.ask, results.missing = ask, missing  # everything else is computed here
    geometry = locate(model).geometry
    heads = geometry.n_layers * geometry.n_heads
    Engine.ready = lambda _, each: at_a_button(make_plan(each), heads)  # type: ignore[method-assign]
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LONGEST)
        app.query_params["model"] = model
        for field, value in LEDGER.items() if name == "methods" else ():
            app.query_params[field] = value
        open_page(app, name)
    finally:
        results.ask, results.missing, Engine.ready = kept  # type: ignore[method-assign]
        os.chdir(here)
    shown = [each.value for each in (*app.exception, *app.error)]
    if shown:
        raise PageFailed(f"{name} of {model}: {shown[0]}")
    return asked
