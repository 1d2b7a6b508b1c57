"""Pinned heads: a head and its run as one line of text, for links.

A pin is written ``L2H6@demo-gpt2``, with an optional ``@revision``, and ``;name=value`` for run
settings that differ from the defaults: ``L5H1@gpt2;corpus=bible;context=512``. A head without a
model belongs to the current run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import DEFAULT_TEXTS, CorpusSpec, Dtype, RunSpec
from poskernel_core.data import corpora
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located

MAX_PINS: Final = 8
LONGEST: Final = 1200
"""Most characters of one pin."""

SETTINGS: Final[dict[str, tuple[Any, Callable[[str], Any]]]] = {
    "corpus": ("sample", str),
    "context": (None, int),
    "windows": (DEFAULT_TEXTS, int),
    "start": (True, lambda text: {"true": True, "false": False}[text]),
    "dtype": ("float32", str),
    "seed": (0, int),
}
"""The run settings of a pin: the default of each, which is not written, and its parser."""

SAFE: Final = "/.-_ :"


@dataclass(frozen=True)
class Pin:
    """One head of one run.

    Attributes:
        cell: the head, such as ``L2H6``.
        model: the model's name; empty: the head is of the current run, and the attributes below
            are unused.
        revision: the model's revision or checkpoint.
        context: ``T`` in tokens; None: the model's context, up to 1024.
        corpus, windows, start, dtype, seed: settings of the run, named as in links.
    """

    cell: str
    model: str = ""
    revision: str | None = None
    corpus: str = "sample"
    context: int | None = None
    windows: int = DEFAULT_TEXTS
    start: bool = True
    dtype: str = "float32"
    seed: int = 0

    def __str__(self) -> str:
        """Return the pin as text, without default settings."""
        if not self.model:
            return self.cell
        text = f"{self.cell}@{quote(self.model, SAFE)}"
        text += f"@{quote(self.revision, SAFE)}" if self.revision else ""
        for name, (usual, _) in SETTINGS.items():
            if (value := getattr(self, name)) != usual:
                text += (
                    f";{name}={quote(str(value).lower() if name == 'start' else str(value), SAFE)}"
                )
        return text

    @classmethod
    def of(cls, cell: str, run: RunSpec, usual: int) -> Pin:
        """Return the pin of a head of a run; ``usual`` is the model's default context."""
        return cls(
            cell,
            run.model.name,
            run.model.revision,
            run.corpus.name,
            None if run.context == usual else run.context,
            run.windows,
            run.start_token,
            run.dtype,
            run.seed,
        )

    @property
    def settings(self) -> str:
        """Settings of the run that differ from the defaults, in words."""
        named = [
            {"windows": counted(value, "window"), "start": "no start token"}.get(
                name, f"{name} {value}"
            )
            for name, (usual, _) in SETTINGS.items()
            if (value := getattr(self, name)) != usual
        ]
        return ", ".join(([f"revision {self.revision}"] if self.revision else []) + named)

    @property
    def label(self) -> str:
        """The head, its model and its run's special settings, for a legend."""
        return " ".join(filter(None, [self.cell, catalog.title_here(self.model), self.settings]))


def read_pins(text: str) -> list[Pin]:
    """Parse comma-separated pins; duplicates are dropped."""
    pins = list(dict.fromkeys(_read(part.strip()) for part in text.split(",") if part.strip()))
    if len(pins) > MAX_PINS:
        raise BadRequest(f"Expected up to {MAX_PINS} heads to compare, got {len(pins)}.")
    return pins


def write_pins(pins: Iterable[Pin]) -> str:
    """Return pins as text for :func:`read_pins`."""
    return ",".join(map(str, pins))


def _read(text: str) -> Pin:
    head, *settings = text.split(";")
    cell, *named = head.split("@")
    cell = cell.upper()
    fields: dict[str, Any] = {}
    try:
        if len(text) > LONGEST or len(named) > 2 or not re.fullmatch(r"L\d{1,6}H\d{1,6}", cell):
            raise ValueError(text)
        for setting in settings:
            name, value = setting.split("=")
            fields[name] = SETTINGS[name][1](unquote(value))
    except (ValueError, KeyError, OverflowError) as error:
        raise BadRequest(
            "A pinned head is written L<layer>H<head>@model, with ;name=value for settings of its "
            f"run that differ from the defaults ({', '.join(SETTINGS)}); got {text[:60]!r}."
        ) from error
    model, revision = (*map(unquote, named), "", "")[:2]
    if settings and not model:
        raise BadRequest(f"A pinned head with settings of a run needs a model; got {text[:60]!r}.")
    return Pin(cell, model, revision or None, **fields)


def pinned_run(
    pin: Pin,
    run: RunSpec | None = None,
    find: Callable[[str, str | None], Located] = catalog.locate,
) -> RunSpec:
    """Return the run of a pin, or ``run`` for a pin without a model; ``find`` locates models."""
    if not pin.model and run is None:
        raise BadRequest(f"The pinned head {pin.cell} needs a model, such as {pin.cell}@gpt2.")
    own = run.model if run is not None and not pin.model else None
    name, revision = (own.name, own.revision) if own else (pin.model, pin.revision)
    located = find(name, revision)
    geometry = located.geometry
    layer, _ = parse_cell(pin.cell, geometry.n_layers, geometry.n_heads)
    if layer in geometry.reasons:
        raise BadRequest(
            f"{pin.cell} of {name!r} is no head: layer {layer} is {geometry.reasons[layer]}."
        )
    if run is not None and not pin.model:
        return run
    context = pin.context or geometry.usual_context
    if not 2 <= context <= geometry.n_ctx:
        raise BadRequest(
            f"{name!r} reads 2 to {geometry.n_ctx} tokens; the pin {str(pin)[:60]!r} asks for "
            f"{context}."
        )
    try:
        return RunSpec(
            model=located.spec,
            corpus=corpora.offered(CorpusSpec(name=pin.corpus)),
            context=context,
            windows=pin.windows,
            positions=located.usual_positions(context),
            start_token=pin.start,
            dtype=cast(Dtype, pin.dtype),
            seed=pin.seed,
        )
    except InvalidField as error:
        raise BadRequest(f"The pin {str(pin)[:60]!r} names no run: {error}") from error


def nearest_position(run: RunSpec, query: int) -> int:
    """Return which of a run's recorded query positions is nearest to ``query``."""
    return min(run.positions, key=lambda position: (abs(position - query), position))
