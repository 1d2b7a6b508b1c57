"""What an analysis and an experiment are, and what they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from poskernel_core.config import DEFAULT_QUERY, DEFAULT_SKIP, MAX_SKIP, RunSpec
from poskernel_core.errors import BadRequest
from poskernel_core.fragments import Part
from poskernel_core.layouts import Source
from poskernel_core.shapes import Tokens
from poskernel_core.views import StatisticsView

__all__ = [
    "Analysis",
    "Experiment",
    "Params",
    "Progress",
    "Question",
    "Result",
    "SkipParams",
    "Subject",
]

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all); raises Cancelled when somebody cancelled."""


class Params(BaseModel):
    """Parameters of an analysis; every field becomes an option of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class SkipParams(Params):
    """Parameters of everything that leaves out the first key positions."""

    skip: int = Field(
        DEFAULT_SKIP, ge=0, le=MAX_SKIP, description="first key positions left out, 0 to 32"
    )


@dataclass(frozen=True)
class Result:
    """Named arrays with units and errors, and where they come from.

    Attributes:
        analysis: the analysis' name.
        params: its parameters.
        values: arrays by name (names of the definitions, in snake case).
        axes: for every value its axes, by the names of the axis legend.
        units: for every value its unit.
        errors: standard errors, of the same shape as the value of that name.
        labels: for values that are codes, the text of each code.
        coordinates: what the indices of an axis stand for, such as the query positions.
        provenance: model, corpus, run, versions, device, date.
        chosen: the coordinates at which it was selected, such as one head's layer and number.
    """

    analysis: str
    params: dict[str, Any]
    values: dict[str, np.ndarray] = field(repr=False)
    axes: dict[str, tuple[str, ...]]
    units: dict[str, str]
    errors: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    coordinates: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if value.ndim != len(self.axes[name]) or name not in self.units:
                raise ValueError(f"{name}: axes {self.axes[name]} for shape {value.shape}")
            if name in self.errors and self.errors[name].shape != value.shape:
                raise ValueError(f"{name}: error of shape {self.errors[name].shape}")

    def select(self, **chosen: int) -> Result:
        """Return the result at one coordinate of each named axis, such as ``query=400``.

        Raises:
            BadRequest: a coordinate that the result does not hold.
        """
        selected = self
        for axis, coordinate in chosen.items():
            selected = selected._select_one(axis, coordinate)
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
            for name, array in self.values.items()
            for each, size in zip(self.axes[name], array.shape, strict=True)
            if each == axis
        }
        if not sizes:
            raise BadRequest(f"{self.analysis!r} has no {axis} to choose: leave it out.")
        if any(not 0 <= place < size for size in sizes):
            raise BadRequest(f"No {axis} {coordinate}: expected 0 to {min(sizes) - 1}.")

        def take(name: str, array: np.ndarray) -> np.ndarray:
            where = self.axes[name].index(axis) if axis in self.axes[name] else None
            return array if where is None else np.asarray(np.take(array, place, axis=where))

        return replace(
            self,
            values={name: take(name, array) for name, array in self.values.items()},
            errors={name: take(name, array) for name, array in self.errors.items()},
            axes={name: tuple(a for a in axes if a != axis) for name, axes in self.axes.items()},
            coordinates={name: c for name, c in self.coordinates.items() if name != axis},
            chosen={**self.chosen, axis: int(coordinate)},
        )

    def only(self, *names: str) -> Result:
        """Return the result with some of its values alone."""
        used = {axis for name in names for axis in self.axes[name]}
        return replace(
            self,
            values={name: self.values[name] for name in names},
            axes={name: self.axes[name] for name in names},
            units={name: self.units[name] for name in names},
            errors={name: self.errors[name] for name in names if name in self.errors},
            labels={name: self.labels[name] for name in names if name in self.labels},
            coordinates={axis: c for axis, c in self.coordinates.items() if axis in used},
        )

    def text_of(self, name: str) -> Any:
        """Return a value as nested lists, codes replaced by their text and NaN by None."""
        array = self.values[name]
        if name in self.labels:
            words = np.array([*self.labels[name], None], dtype=object)
            return words.take(array).tolist() if array.ndim else words[int(array)]
        return plain(array)

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values, the shape that ``show --json`` prints."""
        return {
            "analysis": self.analysis,
            "run": {**self.provenance, "params": self.params},
            "at": self.chosen,
            "values": {name: self.text_of(name) for name in self.values},
            "units": self.units,
            "errors": {name: plain(array) for name, array in self.errors.items()},
            "axes": {name: list(axes) for name, axes in self.axes.items()},
            "coordinates": {name: plain(array) for name, array in self.coordinates.items()},
        }


def plain(array: np.ndarray) -> Any:
    """Return an array as nested lists, with None for NaN (JSON has none)."""
    if array.dtype.kind != "f":
        return array.tolist()
    objects = array.astype(object)
    objects[np.isnan(array)] = None
    return objects.tolist()


class Question(ABC):
    """What can be asked of a run: its parameters, and the passes that the answer stands on.

    Attributes:
        name: what it is asked by.
        title: its heading.
        spoken: what it computes, as it reads after "Computing".
        uses: what a part of a model may lack, and without which there is no answer.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    spoken: ClassVar[str]
    params: ClassVar[type[Params]]
    uses: ClassVar[tuple[Part, ...]] = ()

    def default_query(self, context: int) -> int:
        """Return the query position shown first: the posts' 400, or the last of a short context."""
        return min(DEFAULT_QUERY, context - 1)

    def settled(self, run: RunSpec, params: Any) -> RunSpec:
        """Return the run as far as the answer depends on it, so that equal answers share a key.

        Raises:
            BadRequest: the parameters do not fit the run.
        """
        return run

    @abstractmethod
    def needs(self, run: RunSpec, params: Any) -> Mapping[str, RunSpec]:
        """Return the passes whose statistics are needed, by role.

        Raises:
            BadRequest: the parameters do not fit the run.
        """


class Analysis(Question):
    """A pure function from statistics to a result; role ``main`` is the settled run itself."""

    @abstractmethod
    def compute(
        self, statistics: Mapping[str, StatisticsView], params: Any, progress: Progress
    ) -> Result:
        """Compute the result; provenance is added by whoever calls."""


@dataclass(frozen=True)
class Subject:
    """What an experiment works on.

    Attributes:
        model: a loaded model (``models.LoadedModel``), this experiment's alone.
        windows: token ids of the settled run, ``[text, pos]``.
        words: the text of each token of the first window; empty without a tokenizer.
        decode: token ids -> the text of each.
        start_token: whether position 0 holds the start token.
        source: what random tokens are drawn from.
        batch: sequences per forward pass; None: as many as fit well.
        single_id, encode: a text -> its one token's id, its ids; None without a tokenizer.
    """

    model: Any
    windows: Tokens
    words: list[str]
    decode: Callable[[list[int]], list[str]]
    start_token: bool
    source: Source | None = None
    batch: int | None = None
    single_id: Callable[[str], int] | None = None
    encode: Callable[[str], list[int]] | None = None


class Experiment(Question):
    """A question whose answer needs the model itself: it is run again, with changes.

    One that reads many windows is ``long``: it waits its turn with the passes, so that short ones
    are answered meanwhile. One that ``draws`` makes its sequences itself, from random tokens.
    """

    long: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    @abstractmethod
    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: Any,
        progress: Progress,
    ) -> Result:
        """Run the model and return the result; provenance is added by whoever calls."""
