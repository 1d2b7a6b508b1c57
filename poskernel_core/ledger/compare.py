"""The reproduction ledger: published figures next to computed ones.

A figure *agrees* if the 90 % interval of our difference from it lies within its tolerance, and
*differs* if the 95 % interval lies outside; else it is *undecided*. Several numbers, such as a
curve, are one figure: the mean absolute difference from the published ones.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.jackknife import Estimate, difference, interval
from poskernel_core.common.result import Result, plain
from poskernel_core.common.rounding import as_printed, rounded
from poskernel_core.ledger.published import PublishedFigure, flat

Verdict = Literal["agrees", "differs", "undecided", "not computed"]
MAX_SHOWN = 4

MOST_TIMES = 30
"""Beyond the square of this many times the windows that were read, no number is told."""

WITHIN = 0.9
"""Level of the interval that must lie within the tolerance of a figure that agrees."""

NORMAL_WITHIN = 1.645
"""Its half width in standard errors, if the number of groups is unknown."""


@dataclass(frozen=True)
class Checked:
    """One line of the ledger.

    Attributes:
        figure: the published figure.
        verdict: whether ours agrees.
        ours, errors: our numbers and their standard errors (None if there are none).
        difference: the mean absolute difference between our numbers and the published ones.
        low, high: the ends of its 95 % interval.
        tolerance: the mean tolerance of the numbers.
        windows: about how many windows would decide what is undecided.
        why: the reason if nothing was computed.
    """

    figure: PublishedFigure
    verdict: Verdict
    ours: Any = None
    errors: Any = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    tolerance: float | None = None
    windows: int | None = None
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
        if figure.reading == "largest head":
            return _check_largest(figure, result)
        if isinstance(flat(figure.published)[0], str):
            return _check_words(figure, _words(figure, result))
        return _check_numbers(figure, result)
    except BadRequest as error:
        return not_computed(figure, error)


def _check_axes(figure: PublishedFigure, result: Result) -> None:
    axes = result.only(figure.value).axes[figure.value]
    required = {*figure.select, *figure.over, *(("layer", "head") if figure.heads else ())}
    if figure.candidate:
        required |= {"candidate"}
    unknown = sorted(required - set(axes))
    if unknown:
        raise BadRequest(f"{figure.value!r} has the axes {', '.join(axes)}, not {unknown[0]!r}.")


def brief(numbers: Any, errors: Any = None) -> str:
    """Return a number, or the first few of a list, as text, rounded to the error if known."""
    if not isinstance(numbers, list | tuple):
        if isinstance(numbers, float) and errors is not None:
            return rounded(numbers, errors)
        return as_printed(f"{numbers:.3g}") if isinstance(numbers, float) else str(numbers)
    beside = errors or [None] * len(numbers)
    parts = [
        brief(number, error)
        for number, error in zip(numbers[:MAX_SHOWN], beside[:MAX_SHOWN], strict=True)
    ]
    return f"[{', '.join(parts)}{', ...' if len(numbers) > MAX_SHOWN else ''}]"


def tolerance_text(figure: PublishedFigure) -> str:
    """Return a figure's tolerance as text, such as ``0.02 + 5 %``."""
    absolute = f"{figure.absolute:g}" if figure.absolute else ""
    relative = f"{100 * figure.relative:.0f} %" if figure.relative else ""
    return " + ".join(filter(None, (absolute, relative))) or "exact"


def near_text(line: Checked) -> str:
    """Say how far our numbers are from the published ones; empty for words."""
    if line.difference is None:
        return ""
    ends = "" if line.low is None else f" ({brief(line.low)} to {brief(line.high)})"
    near = f"{brief(line.difference)}{ends}, tolerance {line.tolerance:.3g}"
    more = f"; about {line.windows:,} windows would decide" if line.windows else ""
    return f"{near}{more}"


def _selected(figure: PublishedFigure, result: Result) -> Result:
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


def _check_largest(figure: PublishedFigure, result: Result) -> Checked:
    """Compare the head that has the largest number: it may be told from the published one."""
    computed = result.only(figure.value).select(**figure.select).estimate_of(figure.value)
    if computed.value.ndim != 2 or np.isnan(computed.value).all():
        raise BadRequest(
            f"Expected one number for every head, computed {list(computed.value.shape)}."
        )
    top = np.unravel_index(int(np.nanargmax(computed.value)), computed.value.shape)
    ours = head_name(int(top[0]), int(top[1]))
    distinct = difference(Estimate(*(part[top] for part in computed)), computed).low > 0
    distinct |= np.isnan(computed.value)
    distinct[top] = True
    published = parse_cell(str(figure.published), *computed.value.shape)
    same = ours == head_name(*published)
    sure = distinct.all() if same else distinct[published]
    verdict: Verdict = "undecided" if not sure else "agrees" if same else "differs"
    return Checked(figure, verdict, [ours])


def _words(figure: PublishedFigure, result: Result) -> list[str]:
    if figure.value not in result.labels:
        raise BadRequest(f"{figure.value!r} is a number, not a word.")
    words = _selected(figure, result).text_of(figure.value)
    return [str(word) for word in (words if figure.heads else [words])]


def _check_words(figure: PublishedFigure, ours: list[str]) -> Checked:
    published = flat(figure.published)
    if len(ours) != len(published):
        raise BadRequest(f"Expected {len(published)} words, computed {len(ours)}.")
    verdict: Verdict = "agrees" if ours == list(published) else "differs"
    return Checked(figure, verdict, ours)


def _numbers(figure: PublishedFigure, result: Result) -> tuple[Estimate, np.ndarray]:
    chosen = _selected(figure, result)
    computed = chosen.estimate_of(figure.value)
    errors = np.asarray(chosen.errors.get(figure.value, np.full_like(computed.value, np.nan)))
    if figure.over:
        below = result.only(figure.value).select(**figure.over).values[figure.value]
        computed, errors = Estimate(*(part / below for part in computed)), errors / np.abs(below)
    shape = np.array(figure.published, dtype=float).shape
    if computed.value.ndim != len(shape) or (np.array(computed.value.shape) < shape).any():
        raise BadRequest(f"Expected {list(shape)} numbers, computed {list(computed.value.shape)}.")
    cut = tuple(slice(0, int(size)) for size in shape)
    return Estimate(*(np.asarray(part[cut]) for part in computed)), np.asarray(errors[cut])


def _check_numbers(figure: PublishedFigure, result: Result) -> Checked:
    computed, errors = _numbers(figure, result)
    published = np.array(figure.published, dtype=float)
    known = ~np.isnan(published)
    of_all = figure.absolute + figure.relative * np.abs(published[known])
    tolerance = float(of_all.mean())
    gap = Estimate(*(part[known] - published[known] for part in computed))
    of_90 = interval(result.groups, WITHIN) if result.groups > 1 else NORMAL_WITHIN
    _, inside = _distance(gap, of_90 / result.interval)
    low, high = _distance(gap, 1.0)
    middle = float(np.abs(gap.value).mean())
    line = Checked(figure, "undecided", plain(computed.value), plain(errors), tolerance=tolerance)
    if math.isnan(middle):  # what is missing never agrees
        return replace(line, verdict="differs")
    line = replace(line, difference=middle, low=low, high=high)
    if math.isnan(inside):  # the interval is unknown
        return replace(line, low=None, high=None)
    if inside <= tolerance:
        return replace(line, verdict="agrees")
    if low > tolerance:
        return replace(line, verdict="differs")
    reach = inside - middle if middle <= tolerance else middle - low
    ratio = (reach / max(abs(middle - tolerance), reach / MOST_TIMES)) ** 2
    read = result.provenance.get("windows")
    return replace(line, windows=math.ceil(ratio * read) if isinstance(read, int) else None)


def _distance(gap: Estimate, stretched: float) -> tuple[float, float]:
    low = gap.value - stretched * (gap.value - gap.low)
    high = gap.value + stretched * (gap.high - gap.value)
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    return float(least.mean()), float(np.maximum(np.abs(low), np.abs(high)).mean())
