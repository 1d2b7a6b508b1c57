"""Results: named arrays with axes, units, errors and provenance."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Shaped

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.jackknife import Estimate, Kind, estimate, interval
from poskernel_core.common.specs import whole

NORMAL = 1.96
"""Half width of a 95 % interval, in standard errors, if the number of groups is unknown (normal
distribution).
"""

OF_MEASURE = "that of the measure"
"""The declared unit of values that have the unit, and the labels, of the measure asked for."""

BESIDE = {
    "lows": "low",
    "highs": "high",
    "errors": "standard error",
    "biases": "bias",
    "plug_ins": "plug-in",
}
"""The parts of a result that stand beside its values, with what each is called."""

NPZ = {part: called.split()[-1].replace("-", "_") for part, called in BESIDE.items()}
"""The endings of the names of what stands beside a value in .npz files."""

NUMBERS = ("values", *BESIDE)
"""The parts of a result whose arrays have the axes of the values."""

ROWS = frozenset({"key", "offset"})
"""Axes of rows, which stay distributions: what is computed of them is corrected, they are not."""

Texts = Shaped[np.ndarray, "..."]
"""Texts as an object array: NumPy's string types would lose a NUL at the end of a token."""


@dataclass(frozen=True)
class Value:
    """The declaration of one array of a result.

    Attributes:
        name: its name, as in the definitions, in snake case.
        axes: the names of its axes, from the axis legend.
        unit: its unit, in words; for a text, its kind (a token, a name, a sentence).
        meaning: a description, in Markdown.
        has_error: whether it has a standard error.
        labels: for codes, the text of each code.
        optional: whether some answers lack it.
        over_positions: whether it depends on other recorded positions than that of the query; an
            answer at one position lacks it.
        kind: how it is corrected, and how its interval is drawn, if it has one.
        bounds: its range; a value beyond it, because texts are few, is put at its end.
    """

    name: str
    axes: tuple[str, ...]
    unit: str
    meaning: str
    has_error: bool = False
    labels: tuple[str, ...] = ()
    optional: bool = False
    over_positions: bool = False
    kind: Kind = "smooth"
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def has_interval(self) -> bool:
        """Whether it is computed again without each group of texts: it has an error, or a range."""
        return self.has_error or self.kind == "range"

    @property
    def is_row(self) -> bool:
        """Whether it runs along keys or offsets."""
        return not ROWS.isdisjoint(self.axes)


def declarations(text: str) -> list[str]:
    """Return the declarations in a text, each in a line; an indented line goes on with the last."""
    return [
        " ".join(declaration.split())
        for declaration in re.split(r"\n(?! )", inspect.cleandoc(text))
    ]


def outputs(shaped: str, unit: str = "", meaning: str = "", **more: Any) -> tuple[Value, ...]:
    """Declare values that differ only in name; ``shaped`` looks like ``low high [layer head]``.

    Without a unit, ``shaped`` holds :func:`declarations` as the definitions are printed: ``low high
    [layer head], unit: meaning``, with ``±`` in front if they have standard errors, and ``%`` if
    they are :data:`shares`.
    ``more`` are further attributes of :class:`Value`.
    """
    if not unit:
        rows = map(_DECLARED.findall, declarations(shaped))
        return tuple(
            value for ((sign, *parts),) in rows for value in outputs(*parts, **_SIGNS[sign] | more)
        )
    names, _, axes = shaped.rstrip("]").partition("[")
    return tuple(Value(name, tuple(axes.split()), unit, meaning, **more) for name in names.split())


estimates = partial(outputs, has_error=True)
"""Declare values that have standard errors."""

shares = partial(estimates, kind="share", bounds=(0, 1))
"""Declare shares: estimates from 0 to 1."""

sizes = partial(estimates, kind="null", bounds=(0, math.inf))
"""Declare sizes: estimates of 0 or more, which noise makes larger."""

token_counts = partial(estimates, kind="log", bounds=(1, math.inf))
"""Declare effective numbers of tokens: estimates of 1 or more, as a logarithm."""

ranges = partial(outputs, kind="range")
"""Declare whole numbers, places and what changes by jumps, with the range of their replicates."""

_SIGNS = {"": {}, "± ": estimates.keywords, "% ": shares.keywords}
_DECLARED = re.compile(r"^([±%] )?([\w ]+(?:\[[^]]*\])?), (.+?): (.+)$")


def distances(shaped: str, meaning: str, **more: Any) -> tuple[Value, ...]:
    """Declare distances of two mean rows by total variation, which have standard errors."""
    more = {"kind": "distance", "bounds": (0, 1)} | more
    return estimates(shaped, "TV distance, 0 to 1", meaning, **more)


@dataclass(frozen=True)
class Result:
    """Named arrays with axes, units, errors and provenance.

    Attributes:
        analysis: the analysis' name.
        params: its parameters.
        values: arrays by name (names of the definitions, in snake case), corrected for their bias.
        axes: the axes of every value and text, by the names of the axis legend.
        units: the unit of every value and text.
        texts: arrays of strings by name, such as the tokens of a prompt.
        errors: standard errors, of the same shape as the value of that name.
        lows, highs: the ends of the 95 % intervals, for all that has errors but rows; of ranges,
            the smallest and largest number without one group of texts.
        biases: jackknife estimates of how much a plug-in is too large; a value is its plug-in
            less this, put into its range.
        plug_ins: the numbers as they come from all texts, where they have an interval.
        labels: for values that are codes, the text of each code.
        coordinates: the coordinates along an axis, such as the query positions.
        provenance: model, corpus, run, versions, device, date; also what ``errors`` count, and in
            how many ``groups``.
        chosen: the coordinates that were selected, such as one head's layer and number.
        gaps: of numbers of all texts that are not corrected yet, the rows of distances
            (``analyses.replicates.GAP``).
    """

    analysis: str
    params: dict[str, Any]
    values: dict[str, np.ndarray] = field(repr=False)
    axes: dict[str, tuple[str, ...]]
    units: dict[str, str]
    errors: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    biases: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    lows: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    highs: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    plug_ins: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    coordinates: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    texts: dict[str, Texts] = field(default_factory=dict, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, value in (self.values | self.texts).items():
            if value.ndim != len(self.axes[name]) or name not in self.units:
                raise ValueError(f"{name}: axes {self.axes[name]} for shape {value.shape}")
            for part, called in BESIDE.items():
                beside = getattr(self, part).get(name)
                if beside is not None and beside.shape != value.shape:
                    raise ValueError(f"{name}: {called} of shape {beside.shape}")
        others = {axis for axes in self.axes.values() for axis in axes} | set(self.texts)
        others |= {f"{name}_{end}" for part, end in NPZ.items() for name in getattr(self, part)}
        if twice := sorted(others & set(self.values)):
            raise ValueError(f"{twice}: a value, and an axis, a text, an error or a bias as well")

    @property
    def error_counts(self) -> str:
        """What the errors count, in words; empty if the result does not say."""
        return " or ".join(dict.fromkeys(unit for unit, _ in errors_told(self.provenance) if unit))

    @property
    def groups(self) -> int:
        """The number of groups behind the errors (the smallest of several); 0 if unknown."""
        return min((number for _, number in errors_told(self.provenance) if number), default=0)

    @property
    def interval(self) -> float:
        """The half width of a 95 % interval, in standard errors."""
        return interval(self.groups) if self.groups >= 2 else NORMAL

    @property
    def model_title(self) -> str:
        """What readers call the model; empty without provenance."""
        return str(self.provenance.get("model_title") or self.provenance.get("model", ""))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that a figure of the result can show."""
        known = hashlib.blake2b(
            repr((self.analysis, self.params, self.chosen, self.labels, self.provenance)).encode()
        )
        for part in (*NUMBERS, "coordinates"):
            for name, array in getattr(self, part).items():
                known.update(f"{part} {name} {array.dtype} {array.shape}".encode())
                known.update(np.ascontiguousarray(array).tobytes())
        for name, texts in self.texts.items():
            known.update(repr((name, texts.tolist())).encode())
        return known.hexdigest()

    @property
    def nbytes(self) -> int:
        """The memory that its arrays take, in bytes."""
        return sum(array.nbytes for part in NUMBERS for array in getattr(self, part).values())

    def _changed(self, change: Callable[[str, np.ndarray], np.ndarray]) -> dict[str, Any]:
        return {
            part: {name: change(name, array) for name, array in getattr(self, part).items()}
            for part in NUMBERS
        }

    def select(self, **chosen: int) -> Result:
        """Return the result at one coordinate of each named axis, such as ``query=400``.

        Raises:
            BadRequest: a coordinate that the result does not have.
        """
        selected = self
        for axis, coordinate in chosen.items():
            selected = selected._select_one(axis, whole(coordinate, axis))
        return selected

    def _select_one(self, axis: str, coordinate: int) -> Result:
        known = self.coordinates.get(axis)
        place = coordinate
        if known is not None:
            if coordinate not in known:
                raise BadRequest(f"No {axis} {coordinate}: expected one of {known.tolist()}.")
            place = int(np.flatnonzero(known == coordinate)[0])
        sizes = {
            size
            for name, array in (self.values | self.texts).items()
            for dimension, size in zip(self.axes[name], array.shape, strict=True)
            if dimension == axis
        }
        if all(axis not in self.axes[name] for name in self.values):
            raise BadRequest(f"{self.analysis!r} has no {axis} to choose: leave it out.")
        if any(not 0 <= place < size for size in sizes):
            raise BadRequest(f"No {axis} {coordinate}: expected 0 to {min(sizes) - 1}.")

        def take(name: str, array: np.ndarray) -> np.ndarray:
            if axis not in self.axes[name]:
                return array
            taken = np.take(array, place, axis=self.axes[name].index(axis))
            return np.asarray(taken, dtype=array.dtype)

        return replace(
            self,
            **self._changed(take),
            texts={name: take(name, array) for name, array in self.texts.items()},
            axes={name: tuple(a for a in axes if a != axis) for name, axes in self.axes.items()},
            coordinates={name: c for name, c in self.coordinates.items() if name != axis},
            chosen={**self.chosen, axis: int(coordinate)},
        )

    def without_heads(self, reasons: Mapping[int, str]) -> Result:
        """Blank out the layers that have no heads (NaN, or -1 for codes) and record the reasons."""
        if not reasons:
            return self
        layers = list(reasons)

        def emptied(name: str, array: np.ndarray) -> np.ndarray:
            axes = self.axes[name]
            if "layer" not in axes or "head" not in axes:
                return array
            labelled = name in self.labels
            changed = array.copy() if labelled or array.dtype.kind == "f" else array.astype(float)
            np.moveaxis(changed, axes.index("layer"), 0)[layers] = -1 if labelled else np.nan
            return changed

        named = {str(layer): reason for layer, reason in reasons.items()}
        return replace(
            self,
            **self._changed(emptied),
            provenance={**self.provenance, "layers_without_heads": named},
        )

    def only(self, *names: str) -> Result:
        """Return the result with only some of its values, and the texts along their axes.

        The tokens of the text that the answer is about stay.

        Raises:
            BadRequest: a value that the result does not have.
        """
        for name in names:
            self._check_name(name)
        used = {axis for name in names for axis in self.axes[name]}
        texts = {
            name: text
            for name, text in self.texts.items()
            if used.issuperset(self.axes[name]) or name == TOKENS.name
        }
        both = (*names, *texts)
        parts = {part: getattr(self, part) for part in NUMBERS}
        numbers: dict[str, Any] = {
            part: {name: arrays[name] for name in names if name in arrays}
            for part, arrays in parts.items()
        }
        return replace(
            self,
            **numbers,
            texts=texts,
            axes={name: self.axes[name] for name in both},
            units={name: self.units[name] for name in both},
            labels={name: self.labels[name] for name in names if name in self.labels},
            coordinates={axis: c for axis, c in self.coordinates.items() if axis in used},
        )

    def corrected(self, declared: Sequence[Value]) -> Result:
        """Return the result as it is shown, from numbers of all texts with their errors and biases.

        Values are corrected by their kind and get intervals, once; what is declared without an
        error has none.
        """
        parts: dict[str, Any] = {part: dict(getattr(self, part)) for part in NUMBERS}
        for value in declared:
            name = value.name
            if name not in self.values or name in self.plug_ins:
                continue
            plug_in, error = (parts[part].get(name) for part in ("values", "errors"))
            assert plug_in is not None
            if not value.has_interval or error is None or value.is_row:
                for part in BESIDE if not value.has_interval else ("biases",):
                    parts[part].pop(name, None)
                if bounded(value) and not value.has_interval:
                    parts["values"][name] = np.asarray(np.clip(plug_in, *value.bounds))
                continue
            bias = parts["biases"].get(name, np.zeros_like(error))
            estimated = estimate(value.kind, plug_in, bias, error, self.interval, value.bounds)
            parts["plug_ins"][name] = plug_in
            for part, array in zip(("values", "lows", "highs"), estimated, strict=True):
                parts[part][name] = array
            for part in ("errors", "biases") if value.kind == "range" else ():
                parts[part].pop(name, None)
        return replace(self, **parts)

    def estimate_of(self, name: str, *place: int) -> Estimate:
        """Return a value, or that at a place along its axes, with the ends of its 95 % interval.

        These are NaN where they are unknown. A value declared without an error is exact.
        """
        value = np.asarray(self.values[name][place], dtype=float)
        if name in self.lows:
            ends = self.lows[name][place], self.highs[name][place]
        else:
            error = self.errors.get(name)
            reach = 0.0 * value if error is None else self.interval * error[place]
            ends = value - reach, value + reach
        return Estimate(value, *map(np.asarray, ends))

    def with_text(self, declared: Value, text: Any) -> Result:
        """Return the result with an added text: nested lists of strings, or one string."""
        return replace(
            self,
            texts={**self.texts, declared.name: texts_array(text)},
            axes={**self.axes, declared.name: declared.axes},
            units={**self.units, declared.name: declared.unit},
        )

    def text_of(self, name: str) -> Any:
        """Return a value or text as nested lists, codes replaced by their text and NaN by None.

        Raises:
            BadRequest: a value or text that the result does not have.
        """
        self._check_name(name)
        array = (self.values | self.texts)[name]
        if name in self.labels:
            words = np.array([*self.labels[name], None], dtype=object)
            return words.take(array).tolist() if array.ndim else words[int(array)]
        return plain(array)

    def _check_name(self, name: str) -> None:
        known = self.values | self.texts
        if name not in known:
            raise BadRequest(
                f"No value {name!r} in {self.analysis!r}: expected one of {', '.join(known)}."
            )

    @classmethod
    def join(cls, results: Sequence[Result], axis: str, places: Sequence[str | int]) -> Result:
        """Join results of the same question along a new first axis.

        ``places`` are the positions along this axis. Numbers become the axis' coordinates; names
        become a text with the axis' name. Differing parameters and provenance become lists in the
        same order.

        Raises:
            BadRequest: no results, an axis that exists already, or results that do not match.
        """
        if not results or len(results) != len(places):
            raise BadRequest(
                f"Expected a place for each result, got {len(places)} for {len(results)}."
            )
        first = results[0]
        if any(axis in axes for axes in first.axes.values()) or axis in first.chosen:
            raise BadRequest(
                f"The results have an axis {axis!r} already: name the new one otherwise."
            )
        expected = _likeness(first)
        for one, place in zip(results, places, strict=True):
            for what, actual in _likeness(one).items():
                if actual != expected[what]:
                    raise BadRequest(
                        f"Only like results can be joined: expected {what} of {places[0]!r}, "
                        f"{expected[what]}, got {actual} of {place!r}."
                    )

        stacked: dict[str, Any] = {
            part: {
                name: np.stack([getattr(one, part)[name] for one in results])
                for name in getattr(first, part)
            }
            for part in (*NUMBERS, "texts")
        }
        joined = replace(
            first,
            params=_listed([one.params for one in results]),
            **stacked,
            axes={name: (axis, *axes) for name, axes in first.axes.items()},
            provenance=_listed([one.provenance for one in results]),
            chosen={
                name: at
                for name, at in first.chosen.items()
                if all(one.chosen.get(name) == at for one in results)
            },
        )
        if all(isinstance(place, str) for place in places):
            return joined.with_text(Value(axis, (axis,), "name", ""), list(places))
        return replace(joined, coordinates={axis: np.array(places), **first.coordinates})

    def beside(self, name: str) -> dict[str, np.ndarray]:
        """Return what stands beside a value, by part."""
        parts = {part: getattr(self, part) for part in BESIDE}
        return {part: arrays[name] for part, arrays in parts.items() if name in arrays}

    def words(self, name: str) -> list[str]:
        """Return a text along one axis as a list; empty if the result has no such text."""
        return [str(text) for text in self.texts.get(name, ())]

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values, as printed by ``show --json``."""
        return {
            "analysis": self.analysis,
            "run": {**self.provenance, "params": self.params},
            "at": self.chosen,
            "values": {name: self.text_of(name) for name in self.values},
            "texts": {name: array.tolist() for name, array in self.texts.items()},
            "units": self.units,
            **{
                part: {name: plain(array) for name, array in getattr(self, part).items()}
                for part in BESIDE
            },
            "axes": {name: list(axes) for name, axes in self.axes.items()},
            "coordinates": {name: plain(array) for name, array in self.coordinates.items()},
        }


def beside_of(values: Iterable[tuple[Result, str]]) -> dict[str, np.ndarray]:
    """Stack what stands beside values of several results, by part; NaN where one has none."""
    pairs = [(one.beside(name), np.nan * one.values[name]) for one, name in values]
    parts = [part for part in BESIDE if any(part in beside for beside, _ in pairs)]
    return {part: np.stack([beside.get(part, none) for beside, none in pairs]) for part in parts}


def bounded(value: Value) -> bool:
    """Return whether a value has a range."""
    return any(map(math.isfinite, value.bounds))


def _likeness(result: Result) -> dict[str, Any]:
    return {
        "the question": result.analysis,
        "the shape": {n: array.shape for n, array in (result.values | result.texts).items()},
        "the axes": result.axes,
        "the units": result.units,
        **{f"what has a {called}": sorted(getattr(result, n)) for n, called in BESIDE.items()},
        "the labels": result.labels,
        "the coordinates": {name: array.tolist() for name, array in result.coordinates.items()},
    }


def errors_told(provenance: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the distinct pairs (what the errors count, in how many groups).

    The provenance may be that of one result or of several joined ones.
    """
    counts, groups = (
        value if isinstance(value, list) else [value]
        for value in (provenance.get("errors"), provenance.get("groups"))
    )
    most = max(len(counts), len(groups))
    pairs = zip(counts * (most // len(counts)), groups * (most // len(groups)), strict=True)
    return list(dict.fromkeys((unit or "", number or 0) for unit, number in pairs))


def errors_together(provenances: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine what the errors of several results count, in the form of joined provenance.

    Return an empty dictionary if there are no results.
    """
    pairs = dict.fromkeys(pair for provenance in provenances for pair in errors_told(provenance))
    return _listed([{"errors": counts, "groups": groups} for counts, groups in pairs])


def _listed(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge dictionaries: a field that all share stays as it is, others become lists."""
    names = dict.fromkeys(name for one in several for name in one)
    every = {name: [one.get(name) for one in several] for name in names}
    return {
        name: values[0] if all(value == values[0] for value in values) else values
        for name, values in every.items()
    }


TOKENS = Value("tokens", ("pos",), "token", "the tokens of the one text that the answer is about")
"""The text of every result about a single text."""

(BEGINNINGS,) = outputs(
    "beginning [left_out], text: the first words of some texts of each group", optional=True
)
"""The text of a result about groups of texts, added where the corpus is at hand."""


def texts_array(texts: Any) -> Texts:
    """Return nested lists of strings, or one string, as an object array."""
    return np.array(texts, dtype=object)


def plain(array: np.ndarray) -> Any:
    """Return an array as nested lists, with NaN as None (JSON has no NaN)."""
    if array.dtype.kind != "f":
        return array.tolist()
    objects = array.astype(object)
    objects[np.isnan(array)] = None
    return objects.tolist()
