"""Put tables of the reproduction ledger into the documentation's pages, for `tools/site.py`.

Our numbers come from the results that ship with a part of GPT-2. No model runs.
"""

import re
import sys
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import Engine
from poskernel_core.ledger.compare import Checked, brief, tolerance_text
from poskernel_core.ledger.published import PublishedFigure, figures_of, read_figures
from poskernel_core.ledger.reproduce import compare, published_name
from poskernel_core.storage.store import Store

PART = "gpt2-small-layer0"
MARKER = re.compile(r"^<!-- ledger: (.+) -->$", re.MULTILINE)
HEAD = "| figure | published | ours | tolerance | verdict |\n|---|---|---|---|---|"


def filled(text: str) -> str:
    """Return a page with a table in place of each `<!-- ledger: SOURCE -->`."""
    return MARKER.sub(lambda found: table(found[1]), text)


def table(source: str) -> str:
    """Return all rows of the ledger whose source begins so, and how to compute what is missing."""
    figures = [each for each in read_figures() if each.source.startswith(source)]
    if not figures:
        sys.exit(f"No source in the ledger begins with {source!r}.")
    ours = {each.id: computed().get(each.id) for each in figures}
    lacking = dict.fromkeys(
        f"`poskernel reproduce {e.models[0]}`" for e in figures if not ours[e.id]
    )
    told = [f"Ours come from the shipped results of `{PART}`."] if any(ours.values()) else []
    told += [f"Rows without ours: {', '.join(lacking)}."] if lacking else []
    return "\n".join([HEAD, *(row(each, ours[each.id]) for each in figures), "", " ".join(told)])


def row(figure: PublishedFigure, found: Checked | None) -> str:
    """Return one row: the published figure, and ours or the model that it needs."""
    ours = brief(found.ours, found.errors) if found else ""
    verdict = found.verdict if found else f"needs `{min(figure.models, key=len)}`"
    sizes = np.shape(figure.published)
    published = f"{sizes[0]} × {sizes[1]} numbers" if sizes[1:] else brief(figure.published)
    cells = (figure.figure, published, ours, tolerance_text(figure), verdict)
    return f"| {' | '.join(cells)} |"


@cache
def computed() -> dict[str, Checked]:
    """Return the rows that the shipped results answer, by id: all that the part of GPT-2 has."""
    with tempfile.TemporaryDirectory() as folder, closing(Engine(Store(Path(folder)))) as engine:

        def answer(asked: Request) -> Result:
            found = engine.cached(asked)
            return found or sys.exit(f"The shipped results of {PART} lack {asked.analysis}.")

        found = compare(PART, figures_of(published_name(PART)), answer)
        return {each.figure.id: each for each in found if not each.why}
