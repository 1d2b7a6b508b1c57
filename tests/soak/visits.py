"""Visitors with any address, some of it nonsense; and what a server must not have logged."""

from __future__ import annotations

import random
import re
from pathlib import Path

from pages.shared.grid.measures import MEASURES
from poskernel_core.models.curated import BUNDLED_MODELS
from tests.soak.trial import need
from tools.recorded import page_names

MODELS = ("demo-gpt2", "demo-attn-2l", "demo-training")
PAGES = ("", *page_names(), "no_such_page")
PARAMETERS = {
    "model": (*BUNDLED_MODELS, "no-such-model", "../../etc/passwd", "<script>"),
    "corpus": ("sample", "bible", "nothing", "%00"),
    "head": ("L0H0", "L1H3", "L2H6", "L99H99", "x", "L²H1", "L-1H0"),
    "query": ("0", "1", "100", "400", "-5", "1e9", "nan", "٤"),
    "skip": ("0", "4", "8", "-1", "999", "x"),
    "context": ("64", "128", "512", "7", "1e9"),
    "start": ("true", "false", "perhaps"),
    "measure": (*MEASURES, "no such measure"),
    "order": ("number", "ETC", "?"),
    "k": ("1", "3", "1000000", "-1"),
    "hl": ("0", "2", "77"),
    "neuron": ("0", "648", "99999999"),
}


def tracebacks(*logs: Path) -> None:
    """Fail if a log has a traceback."""
    for place in logs:
        text = place.read_text("utf-8", "replace") if place.is_file() else ""
        found = text.count("Traceback")
        need(not found, f"{place.name} has {found} tracebacks, the last: {_last_of(text)}")


def _last_of(log: str) -> str:
    """Return the last traceback of a log in a line: where, and then what it was."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", log)  # streamlit's are coloured
    lines = plain[max(0, plain.rfind("Traceback")) :].splitlines()
    ends = next((at for at, line in enumerate(lines[1:], 1) if not line.startswith(" ")), -1)
    places = [line.strip() for line in lines[1:ends] if re.search(r"\.py\b", line)]
    return f"{'; '.join(places)}: {lines[ends]}" if lines else ""


def address(draw: random.Random) -> dict[str, str]:
    """Return a random page and random parameters, some of them nonsense."""
    names = draw.sample(list(PARAMETERS), draw.randrange(5))
    chosen = {name: draw.choice(PARAMETERS[name]) for name in names}
    return {"page": draw.choice(PAGES), "windows": "50", **chosen}
