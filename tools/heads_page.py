"""Write the page on the heads of SmolLM2-135M from stored results: `python tools/heads_page.py`.

Everything on the page, including wording that depends on a number, comes from the shipped results;
the text is in `heads_page.md.jinja`. A test compares the output with the page.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from poskernel_core.analyses import find
from poskernel_core.analyses.kernels.formulas import KINDS
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import rounded
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.storage.store import Store

MODEL = "smollm2-135m-instruct-q4"
TARGET = ROOT / "docs" / "concepts" / "heads-of-smollm2-135m.md"
TEMPLATE = Path(__file__).with_suffix(".md.jinja")
CONSTANTS = {"QUERY": 400, "SKIP": 4, "SHARE": 0.3, "HALF": 0.5}
"""`SHARE`: the least attention with which a head counts as attending somewhere, as in verdicts."""
MAX_ROWS = 8
LINK = "http://localhost:8501/head?model={model}&head={head}"


@dataclass(frozen=True)
class Numbers:
    """One number of every head ``[layer, head]``, its error, and the lower end of its interval."""

    value: np.ndarray
    error: np.ndarray
    low: np.ndarray

    def above(self, limit: float) -> np.ndarray:
        return self.low > limit

    def text(self, layer: int, head: int) -> str:
        return rounded(float(self.value[layer, head]), float(self.error[layer, head]))


def page() -> str:
    with tempfile.TemporaryDirectory() as folder:
        engine, run = Engine(Store(folder)), describe_run(MODEL)

        @cache
        def answer(name: str) -> Result:
            question = find(name)
            skip = {"skip": CONSTANTS["SKIP"]} if name in ("etc", "rotary-spectrum") else {}
            found = engine.cached(plan_of(question, run, question.params(**skip)))
            assert found is not None, f"{name} is not stored"
            return found

        def numbers(name: str, value: str, **at: int) -> Numbers:
            whole = answer(name).only(value).select(**at)
            found = whole.estimate_of(value)
            error = whole.errors.get(value, np.full(found.value.shape, np.nan))
            return Numbers(found.value, error, found.low)

        environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        named = {each.__name__: each for each in (table, bands, answer, numbers)}
        template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
        with closing(engine):
            written = template.render(named, np=np, KINDS=KINDS, median=np.nanmedian, **CONSTANTS)
    return f"{written}\n"


def bands(spectrum: Result) -> tuple[str, str]:
    params = find("rotary-spectrum").params.model_validate(spectrum.params)
    limits = params.short, params.longest(int(spectrum.provenance["context"]))
    return f"{limits[0]:g}", f"{limits[1]:g}"


def table(
    numbers: Numbers, found: np.ndarray, title: str, beside: dict[str, Numbers] | None = None
) -> str:
    beside = beside or {}
    ranked = np.where(found, np.nan_to_num(numbers.value), -np.inf)
    order = np.argsort(-ranked, axis=None, kind="stable")
    places = order[: min(MAX_ROWS, int(found.sum()))]
    if not len(places):
        return ""
    lines = [
        "",
        f"| {' | '.join(('head', title, *beside))} |",
        "|:--|" + "--:|" * (1 + len(beside)),
    ]
    for layer, head in zip(*np.unravel_index(places, found.shape), strict=True):
        name = head_name(int(layer), int(head))
        texts = [each.text(layer, head) for each in (numbers, *beside.values())]
        lines.append(f"| [{name}]({LINK.format(model=MODEL, head=name)}) | {' | '.join(texts)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ["POSKERNEL_SHIPPED"] = "1"
    TARGET.write_text(page(), encoding="utf-8")
