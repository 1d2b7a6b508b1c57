"""The reproduction ledger: published figures next to computed ones.

A figure agrees if each of our numbers differs from the published number by no more than the
figure's tolerance plus half the width of our 95 % interval.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.result import Result, plain
from poskernel_core.common.rounding import rounded
from poskernel_core.ledger.published import PublishedFigure, flat

Verdict = Literal["agrees", "differs", "not computed"]
MAX_SHOWN = 4


@dataclass(frozen=True)
class Checked:
    """One line of the ledger.

    Attributes:
        figure: the published figure.
        verdict: whether ours agrees.
        ours, errors: our numbers and their standard errors (None if there are none).
        within, points: how many of the published numbers agree, and how many there are.
        worst: largest difference between our numbers and the published ones.
        why: the reason if nothing was computed.
    """

    figure: PublishedFigure
    verdict: Verdict
    ours: Any = None
    errors: Any = None
    within: int = 0
    points: int = 0
    worst: float | None = None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the line as plain JSON values."""
        return self.figure.model_dump(mode="json") | {
            name: value for name, value in vars(self).items() if name != "figure"
        }


def not_computed(figure: PublishedFigure, error: Exception) -> Checked:
    """Return the ledger line of a figure that could not be computed, with the reason."""
    return Checked(figure, "not computed", why=str(error))


def check(figure: PublishedFigure, result: Result) -> Checked:
    """Compare a result with a published figure."""
    try:
        _check_axes(figure, result)
        if isinstance(flat(figure.published)[0], str):
            return _check_words(figure, _words(figure, result))
        ours, errors = _numbers(figure, result)
    except BadRequest as error:
        return not_computed(figure, error)
    return _check_numbers(figure, ours, errors, result.interval)


def _check_axes(figure: PublishedFigure, result: Result) -> None:
    axes = result.only(figure.value).axes[figure.value]
    asked = {*figure.select, *figure.over, *(("layer", "head") if figure.heads else ())}
    if figure.candidate:
        asked |= {"candidate"}
    unknown = sorted(asked - set(axes))
    if unknown:
        raise BadRequest(f"{figure.value!r} has the axes {', '.join(axes)}, not {unknown[0]!r}.")


def brief(numbers: Any, errors: Any = None) -> str:
    """Return a number, or the first few of a list, as text, rounded to the error if known."""
    if not isinstance(numbers, list | tuple):
        if isinstance(numbers, float) and errors is not None:
            return rounded(numbers, errors)
        return f"{numbers:.3g}" if isinstance(numbers, float) else str(numbers)
    beside = errors or [None] * len(numbers)
    parts = [
        brief(each, error)
        for each, error in zip(numbers[:MAX_SHOWN], beside[:MAX_SHOWN], strict=True)
    ]
    return f"[{', '.join(parts)}{', ...' if len(numbers) > MAX_SHOWN else ''}]"


def tolerance_text(figure: PublishedFigure) -> str:
    """Return a figure's tolerance as text, such as ``0.02 + 5 %``."""
    absolute = f"{figure.absolute:g}" if figure.absolute else ""
    relative = f"{100 * figure.relative:.0f} %" if figure.relative else ""
    return " + ".join(filter(None, (absolute, relative))) or "exact"


def _selected(figure: PublishedFigure, result: Result) -> Result:
    """Return the result at the figure's selection, with its heads along a new axis."""
    result = result.only(figure.value).select(**figure.select, **_candidate(figure, result))
    if not figure.heads:
        return result
    axes, shape = result.axes[figure.value], result.values[figure.value].shape
    sizes = dict(zip(axes, shape, strict=True))
    cells = [parse_cell(cell, sizes["layer"], sizes["head"]) for cell in figure.heads]
    chosen = [result.select(layer=layer, head=head) for layer, head in cells]
    return Result.join(chosen, "cell", figure.heads)


def _candidate(figure: PublishedFigure, result: Result) -> dict[str, int]:
    if not figure.candidate:
        return {}
    words = result.words("candidates")
    if figure.candidate not in words:
        raise BadRequest(
            f"{figure.candidate!r} is not among the likeliest next tokens: {', '.join(words)}."
        )
    return {"candidate": int(result.coordinates["candidate"][words.index(figure.candidate)])}


def _words(figure: PublishedFigure, result: Result) -> list[str]:
    if figure.reading == "largest head":
        found = result.only(figure.value).select(**figure.select).values[figure.value]
        if found.ndim != 2 or np.isnan(found).all():
            raise BadRequest(f"Expected one number for every head, computed {list(found.shape)}.")
        layer, head = np.unravel_index(int(np.nanargmax(found)), found.shape)
        return [head_name(int(layer), int(head))]
    if figure.value not in result.labels:
        raise BadRequest(f"{figure.value!r} is a number, not a word.")
    words = _selected(figure, result).text_of(figure.value)
    return [str(word) for word in (words if figure.heads else [words])]


def _check_words(figure: PublishedFigure, ours: list[str]) -> Checked:
    published = flat(figure.published)
    if len(ours) != len(published):
        raise BadRequest(f"Expected {len(published)} words, computed {len(ours)}.")
    same = [a == b for a, b in zip(ours, published, strict=True)]
    verdict: Verdict = "agrees" if all(same) else "differs"
    return Checked(figure, verdict, ours, within=sum(same), points=len(same))


def _numbers(figure: PublishedFigure, result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Return our numbers and errors in the shape of the published ones."""
    chosen = _selected(figure, result)
    ours = np.asarray(chosen.values[figure.value], dtype=float)
    none = np.full_like(ours, np.nan)
    errors = np.asarray(chosen.errors.get(figure.value, none), dtype=float)
    if figure.over:
        below = result.only(figure.value).select(**figure.over).values[figure.value]
        ours, errors = ours / below, errors / np.abs(below)
    shape = np.array(figure.published, dtype=float).shape
    if ours.ndim != len(shape) or (np.array(ours.shape) < shape).any():
        raise BadRequest(f"Expected {list(shape)} numbers, computed {list(ours.shape)}.")
    cut = tuple(slice(0, int(size)) for size in shape)
    return np.asarray(ours[cut]), np.asarray(errors[cut])


def _check_numbers(
    figure: PublishedFigure, ours: np.ndarray, errors: np.ndarray, width: float
) -> Checked:
    published = np.array(figure.published, dtype=float)
    asked = ~np.isnan(published)
    tolerance = figure.absolute + figure.relative * np.abs(published)
    allowed = tolerance + width * np.nan_to_num(errors)
    difference = np.abs(ours - published)
    met = (difference <= allowed)[asked]  # NaN counts as not met
    worst = difference[asked]
    return Checked(
        figure,
        "agrees" if met.all() else "differs",
        plain(ours),
        plain(errors),
        within=int(met.sum()),
        points=int(asked.sum()),
        worst=None if np.isnan(worst).all() else float(np.nanmax(worst)),
    )
