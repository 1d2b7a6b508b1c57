"""Figures published in posts and in the literature, for comparison only; never shown as our own.

They are stored in ``published.json`` next to this file; a file of the same format with other
figures can be used instead.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.files import read_json
from poskernel_core.common.specs import Spec
from poskernel_core.models.fragments import Part

BUNDLED_FIGURES = Path(__file__).with_name("published.json")

Number = Annotated[float, Field(allow_inf_nan=True)] | None
Values = str | Number | tuple[str, ...] | tuple[Number, ...] | tuple[tuple[Number, ...], ...]


class PublishedFigure(Spec):
    """One published figure, and the question that computes it.

    Attributes:
        id: short name.
        models: names of the models that it was measured on.
        figure: a description; ``source``: where it was published.
        question, run, params: the analysis or experiment, fields of its run (context,
            start_token, ...), and its parameters.
        value: the value of the result; ``select``: a coordinate for some of its axes; ``heads``:
            heads, one for each published number; ``candidate``: the next token whose probability is
            meant; ``over``: a selection to divide by.
        reading: the numbers themselves, or the name of the head with the largest number.
        published: the numbers; None for a missing one.
        absolute, relative: the tolerance is ``absolute + relative * |published|``.
        note: a remark for readers.
        needs: parts of a model that the figure needs, and that a partial model may lack.
    """

    called = "figure"

    id: str = Field(min_length=1)
    models: tuple[str, ...] = ()
    figure: str
    source: str
    question: str
    run: dict[str, Any] = Field(default_factory=dict)
    params: dict[str, Any] = Field(default_factory=dict)
    value: str
    select: dict[str, int] = Field(default_factory=dict)
    heads: tuple[str, ...] = ()
    candidate: str = ""
    over: dict[str, int] = Field(default_factory=dict)
    reading: Literal["value", "largest head"] = "value"
    published: Values
    absolute: float = Field(0.0, ge=0, allow_inf_nan=False)
    relative: float = Field(0.0, ge=0, allow_inf_nan=False)
    note: str = ""
    needs: tuple[Part, ...] = ()

    @model_validator(mode="after")
    def _sound(self) -> PublishedFigure:
        """Refuse figures that would agree without a number, or that cannot be compared."""
        entries = flat(self.published)
        words = [entry for entry in entries if isinstance(entry, str)]
        if words and len(words) < len(entries):
            raise InvalidField("Expected words or numbers, not both.")
        if not words and not any(entry is not None and math.isfinite(entry) for entry in entries):
            raise InvalidField("No number is published.")
        if not words and any(entry is not None and not math.isfinite(entry) for entry in entries):
            raise InvalidField("Published numbers are finite; null where there is none.")
        if self.heads and (
            not isinstance(self.published, tuple) or len(entries) != len(self.heads)
        ):
            raise InvalidField("Expected one published number for each of the heads.")
        if self.reading == "largest head" and not isinstance(self.published, str):
            raise InvalidField("The largest head is a name, such as 'L0H3'.")
        rows = self.published if isinstance(self.published, tuple) else ()
        if len({len(row) for row in rows if isinstance(row, tuple)}) > 1:
            raise InvalidField("Expected rows of one length.")
        return self


def flat(values: Any) -> list[Any]:
    """Flatten nested lists, or a single number, into one list."""
    if not isinstance(values, list | tuple):
        return [values]
    return [one for item in values for one in flat(item)]


@cache
def read_figures(path: Path = BUNDLED_FIGURES) -> tuple[PublishedFigure, ...]:
    """Read a JSON list of figures, with the fields of :class:`PublishedFigure`.

    Raises:
        BadRequest: the file does not exist or has another format.
    """
    try:
        entries = read_json(path)
        if not isinstance(entries, list):
            raise ValueError("it holds something else")
        figures = tuple(_figure(path, place, entry) for place, entry in enumerate(entries))
    except OSError as error:
        raise BadRequest(f"Cannot read {str(path)!r}: {error.strerror}.") from error
    except ValueError as error:
        raise BadRequest(
            f"Expected a JSON list of published figures in {str(path)!r}: {error}."
        ) from error
    names = [figure.id for figure in figures]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadRequest(f"{str(path)!r} names {twice[0]!r} twice: give each figure its own id.")
    return figures


def _figure(path: Path, place: int, entry: Any) -> PublishedFigure:
    try:
        return PublishedFigure.model_validate(entry)
    except BadRequest as error:
        raise BadRequest(f"{str(path)!r}, figure {place}: {error}") from error


def figures_of(model: str, path: Path = BUNDLED_FIGURES) -> tuple[PublishedFigure, ...]:
    """Return the figures published for a model, and those that name no model."""
    return tuple(
        figure for figure in read_figures(path) if model in figure.models or not figure.models
    )


def known_models(path: Path = BUNDLED_FIGURES) -> list[str]:
    """Return the models with published figures; of several names for a model, the shortest."""
    named: dict[frozenset[str], str] = {}
    figures = read_figures(path)
    for model in sorted({model for figure in figures for model in figure.models}, key=len):
        named.setdefault(
            frozenset(figure.id for figure in figures if model in figure.models), model
        )
    return sorted(named.values())


def _bundled(name: str) -> PublishedFigure:
    return next(figure for figure in read_figures() if figure.id == name)


_RATIOS = _bundled("previous-token-ratios")
PREVIOUS_TOKEN_GPT2: dict[str, float] = dict(zip(_RATIOS.heads, _RATIOS.published, strict=True))  # type: ignore[arg-type]
"""Second-largest diagonal over largest, GPT-2 small ("previous-token heads")."""

PREVIOUS_TOKEN_HEADS_GPT2 = (69, 144)
"""Number of GPT-2 small's heads whose largest diagonal is the previous token; number of heads."""

ANGLES_GPT2: tuple[float, ...] = tuple(_bundled("helix-angles-residual").published)  # type: ignore[arg-type]
"""Canonical angles in degrees between the top-3 subspaces of W_pos and of layer 2, GPT-2 small."""
