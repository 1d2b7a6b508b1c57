"""Base classes of analyses, experiments and compositions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo

from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.replicates import GAP, computed, errors_and_biases
from poskernel_core.common.axes import Tokens
from poskernel_core.common.groups import Dealt
from poskernel_core.common.jackknife import signs
from poskernel_core.common.result import Result, Value, texts_array
from poskernel_core.common.specs import (
    DEFAULT_QUERY,
    DEFAULT_SKIP,
    DEFAULT_TOKEN,
    MAX_SKIP,
    MAX_TEXT_CHARACTERS,
    OF_PATTERNS,
    Gather,
    ModelSpec,
    RunSpec,
    Spec,
)
from poskernel_core.common.views import Some, StatisticsView, without
from poskernel_core.data.layouts import TokenPool
from poskernel_core.models.fragments import Part
from poskernel_core.models.geometry import Geometry

Progress = Callable[[int, int], None]
"""Callback with (steps done, total steps); raises Cancelled after a cancel."""


KEPT_QUERIES = frozenset({"positions", "queries_per_position"})
"""The run fields that decide which queries a pass keeps."""

OWN_PASS = frozenset({"gather", "pattern_windows"})
"""The run fields without effect on a question that sets ``gather`` and gathers no attention."""

UNKNOWN = "nothing"
"""What provenance says where errors are unknown: there is one text, or no groups of texts."""

FEWER = "windows times context", "choose fewer windows or a shorter context"
"""What makes the number of tokens that are read, and what to choose if it is too large."""

OWN_WINDOWS = frozenset({"windows", "positions", "destination", "repeat_every"})
"""The run fields that do not matter to an experiment that chooses its windows itself."""

Statistics = Mapping[str, StatisticsView]
"""The statistics that an answer is computed from, by role."""


def bounds_of(field: FieldInfo) -> dict[str, Any]:
    """Return the bounds of a parameter by pydantic's names, such as ``{"ge": 0, "le": 32}``."""
    names = ("ge", "gt", "le", "min_length", "max_length")
    every = [(name, getattr(limit, name, None)) for limit in field.metadata for name in names]
    return {name: bound for name, bound in every if bound is not None}


class Params(Spec):
    """Parameters of an analysis; every field becomes an option of the command line."""

    model_config = ConfigDict(validate_default=True)

    called = "analysis"

    @classmethod
    def typed_texts(cls) -> list[str]:
        """Return the names of the parameters that are whole texts, as typed."""
        bounds = {name: bounds_of(field) for name, field in cls.model_fields.items()}
        return [name for name in bounds if bounds[name].get("max_length") == MAX_TEXT_CHARACTERS]

    @classmethod
    def ends(cls, name: str) -> tuple[Any, Any]:
        """Return the least and the largest number, or length of a text, that a field may have."""
        field, limits = cls.model_fields[name], bounds_of(cls.model_fields[name])
        number: Callable[[Any], Any] = float if isinstance(field.default, float) else int
        return number(limits.get("ge", 0)), number(limits.get("le", limits.get("max_length")))


class SkipParams(Params):
    """Parameters of questions that skip the first key positions."""

    skip: int = Field(DEFAULT_SKIP, ge=0, le=MAX_SKIP, description="first key positions left out")


class QueryParams(SkipParams):
    """Parameters of questions about one query position."""

    query: int = Field(DEFAULT_QUERY, ge=0, description="query position n")


class TokenParams(Params):
    """Parameters that name a token.

    If the default is not a token of the model, a plan puts another one in its place.
    """

    token: str = Field(
        DEFAULT_TOKEN, min_length=1, max_length=64, description="the destination token"
    )


P = TypeVar("P", bound=Params)


class Question(ABC, Generic[P]):
    """What can be asked of a run: its parameters, and the passes that it needs.

    Methods that get parameters raise BadRequest if these do not fit the run, the model or the text.

    Attributes:
        questions: all questions by name; set by the registry.
        name: its identifier.
        title: its heading.
        noun_phrase: the noun phrase that completes "Computing ...".
        params: the class of its parameters, from its type argument unless given.
        values: its numeric outputs, with axes and units.
        texts: its string outputs.
        gathers: the sums that its only pass gathers; None: those that the run names; empty: it
            needs no pass.
        ignores: the run fields that its answer does not depend on. Those of an analysis with a pass
            of its own (``gathers``) follow from what it gathers, unless it names them.
        uses: the model parts that it requires.
        scheme: the position schemes that it works for, such as ``rotary ALiBi``; empty: any.
        narrow_below: values whose 95 % intervals are too narrow in some heads, and below how many
            windows (``tools/coverage.py``); 0: of any number that was tried.
        measures: its measures that can colour the grid of all heads and join the tables of all.
        precomputed: when ``precompute`` computes it: always, with ``--experiments``, or never.
            ``shipped`` is never too, but bundled models come with what a button of a page computes.
        continued: how a cell of Python computes its number by hooks (``export.continuation``);
            empty: the cell only boots the model and reads the windows.
        error_counts: what the errors count, in words that follow "Errors count"; used where the
            answer's provenance does not say.
    """

    questions: ClassVar[Mapping[str, Question[Any]]]
    name: ClassVar[str]
    title: ClassVar[str]
    noun_phrase: ClassVar[str]
    params: type[P]
    values: ClassVar[tuple[Value, ...]]
    texts: ClassVar[tuple[Value, ...]] = ()
    gathers: ClassVar[tuple[Gather, ...] | None] = None
    ignores: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[tuple[Part, ...]] = ()
    scheme: ClassVar[str] = ""
    narrow_below: ClassVar[tuple[tuple[str, int], ...]] = ()
    measures: ClassVar[tuple[HeadMeasure, ...]] = ()
    precomputed: ClassVar[Literal["always", "experiments", "shipped", "never"]] = "never"
    continued: ClassVar[str] = ""
    error_counts: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        for given in (get_args(base) for base in cls.__dict__.get("__orig_bases__", ())):
            if "params" not in cls.__dict__ and isinstance(given[0], type):  # no type variable
                cls.params = given[0]

    @classmethod
    def selectable(cls) -> list[str]:
        """Return which of ``head`` and ``query`` select from its answer, not being parameters."""
        axes = {axis for value in cls.values for axis in value.axes}
        needed = {"head": {"layer", "head"}, "query": {"query"}}
        own = cls.params.model_fields
        return [name for name, those in needed.items() if name not in own and those <= axes]

    @classmethod
    def fits_scheme(cls, scheme: str) -> bool:
        """Return whether it works for models with this position scheme."""
        return not cls.scheme or scheme in cls.scheme.split()

    def fits_model(self, model: ModelSpec) -> bool:
        """Return whether it works for a model, as far as its files tell; by default for any."""
        return True

    @property
    def on_request(self) -> bool:
        """Whether tables of all measures include it only if a reader asks for it."""
        return self.precomputed != "always"

    @classmethod
    def result(
        cls,
        params: Params,
        values: Mapping[str, np.ndarray],
        errors: Mapping[str, np.ndarray] | None = None,
        biases: Mapping[str, np.ndarray] | None = None,
        *,
        beside: Mapping[str, Mapping[str, np.ndarray]] = MappingProxyType({}),
        labels: Mapping[str, tuple[str, ...]] | None = None,
        coordinates: Mapping[str, np.ndarray] | None = None,
        texts: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Result:
        """Return a result with the given values and their declared axes, units and labels.

        Values are numbers of all texts, to be corrected. Values of other results are corrected
        already, and come with what stands ``beside`` them, by value. Rows of distances
        (:data:`~poskernel_core.analyses.replicates.GAP`) may stand among them.
        ``texts`` are nested lists of strings; ``labels`` are those that depend on the parameters.

        Raises:
            ValueError: a value, text, error or bias is not declared.
        """
        declared = {value.name: value for value in cls.values}
        gaps = {name: array for name, array in values.items() if name.endswith(GAP)}
        values = {name: array for name, array in values.items() if name not in gaps}
        strings = {text.name: text for text in cls.texts}
        parts: dict[str, Any] = {"errors": dict(errors or {}), "biases": dict(biases or {})}
        for name, those in beside.items():
            for part, array in those.items():
                parts.setdefault(part, {})[name] = array
        texts = texts or {}
        odd = (values.keys() - declared.keys()) | (texts.keys() - strings.keys())
        known = {name for part in parts.values() for name in part}
        odd |= known - {value.name for value in cls.values if value.has_interval}
        if odd:
            raise ValueError(f"{cls.name!r} does not declare {sorted(odd)}, or not with errors")
        named = {name: (declared | strings)[name] for name in (*values, *texts)}
        reported = {"errors": cls.error_counts} if parts["errors"] and cls.error_counts else {}
        made = Result(
            analysis=cls.name,
            params=params.model_dump(),
            values=dict(values),
            axes={name: value.axes for name, value in named.items()},
            units={name: value.unit for name, value in named.items()},
            **parts,
            texts={name: texts_array(text) for name, text in texts.items()},
            labels={n: v.labels for n, v in named.items() if v.labels} | dict(labels or {}),
            coordinates=dict(coordinates or {}),
            provenance=reported | dict(provenance or {}),
            gaps=gaps,
        )
        return cls.shown(made)

    @classmethod
    def shown(cls, result: Result) -> Result:
        """Return a result of numbers of all texts as it is shown: corrected, with intervals."""
        return cls.derived(result.corrected(cls.values))

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Return the result with what follows from corrected values, such as a kind."""
        return result

    @classmethod
    def beside(cls, module: str, name: str) -> Callable[..., Any]:
        """Import a module of the topic's folder lazily, and return one of its functions."""
        topic = cls.__module__.rpartition(".")[0]
        function: Callable[..., Any] = getattr(import_module(f"{topic}.{module}"), name)
        return function

    def default_query(self, context: int) -> int:
        """Return the default query position: 400 as in the posts, or a shorter context's last."""
        return min(DEFAULT_QUERY, context - 1)

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        """Return this model's defaults, which replace those that the parameters declare."""
        return {}

    def completed(self, run: RunSpec, params: P) -> P:
        """Return the parameters with those that the model decides, so that the key has them."""
        return params

    def canonical(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run without what the answer ignores, so that equal answers share a key."""
        return self.with_params(run.without(self.ignores), params)

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run after setting the fields that the parameters decide."""
        return run

    def needs(self, run: RunSpec, params: P) -> Mapping[str, RunSpec]:
        """Return the passes needed, by role; by default the one that ``gathers`` describes."""
        if self.gathers is None:
            return {"main": run}
        return {"main": run.model_copy(update={"gather": self.gathers})} if self.gathers else {}


class Analysis(Question[P]):
    """A pure function from statistics to a result; role ``main`` is the canonical run itself."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.gathers and "ignores" not in vars(cls):
            over_queries = any("query" in value.axes for value in cls.values)
            matters = {"positions"} if over_queries else set()
            matters |= {"queries_per_position"} if "queries" in cls.gathers else set()
            matters |= set() if OF_PATTERNS.isdisjoint(cls.gathers) else {"pattern_windows"}
            cls.ignores = (KEPT_QUERIES | OWN_PASS) - matters

    def at_one_position(self, params: P) -> list[str]:
        """Return the values that can be computed at one recorded position; a stage has these."""
        return [value.name for value in self.values if not value.over_positions]

    @abstractmethod
    def compute(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the values; the caller adds errors, provenance and the recorded positions."""

    def numbers(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the values of all texts, at the recorded positions if it says no others."""
        found = self.compute(statistics, params, progress)
        if "query" in found.coordinates or not any("query" in axes for axes in found.axes.values()):
            return found
        positions = np.array(statistics["main"].header.positions, dtype=np.int64)
        return replace(found, coordinates={**found.coordinates, "query": positions})

    def replicate(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the values that have errors, for one leave-one-group-out replicate.

        Override this method where the other values are expensive.
        """
        return self.compute(statistics, params, progress)

    def answer(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the result, with errors and biases over groups of texts."""
        if not any(value.has_interval for value in self.values):
            return self.numbers(statistics, params, progress)
        return self.shown(self.jackknifed(statistics, params, progress)[0])

    def of_layers(
        self,
        statistics: Statistics,
        progress: Progress,
        values_of: Callable[[int], Mapping[str, np.ndarray]],
    ) -> dict[str, np.ndarray]:
        """Compute the values layer by layer, and stack each value along a new first axis.

        Of the rows of distances a replicate keeps the signs.
        """
        count, rows = statistics["main"].header.n_layers, []
        replicate = isinstance(statistics["main"], Some)
        for layer in range(count):
            row = values_of(layer)
            kept = {name: signs(row[name]) for name in row if replicate and name.endswith(GAP)}
            rows.append({**row, **kept})
            progress(layer + 1, count)
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def jackknifed(
        self, statistics: Statistics, params: P, progress: Progress
    ) -> tuple[Result, list[Result]]:
        """Return the numbers of all texts with errors and biases, and the replicates.

        A replicate leaves one group of texts out of every pass that has as many groups as the main
        pass.
        """
        header = statistics["main"].header
        left_out = [
            {
                role: without(view, group) if view.header.groups == header.groups else view
                for role, view in statistics.items()
            }
            for group in range(header.groups if header.groups > 1 else 0)
        ]
        tasks = [
            partial(self.numbers, statistics, params),
            *(partial(self.replicate, one, params) for one in left_out),
        ]
        full, *replicates = computed(tasks, progress)
        counts = {"errors": header.dealt, "groups": header.groups}
        numbers, *rest = ({**one.values, **one.gaps} for one in (full, *replicates))
        errors, biases = errors_and_biases(self.values, numbers, rest)
        made = full.provenance | (counts if replicates else {"errors": UNKNOWN})
        result = replace(full, errors=errors, biases=biases, provenance=made, gaps={})
        return result, replicates


@dataclass(frozen=True)
class SubQuestion:
    """A question whose answer a composition needs."""

    question: Question[Any]
    run: RunSpec
    params: Params


class Composition(Question[P]):
    """A question whose answer combines the answers to other questions.

    Each part is stored under its own key. The combination is not stored, so it is never stale.
    With ``can_lack_parts``, those on request are left out where neither they nor the weights are.
    """

    gathers = ()
    can_lack_parts: ClassVar[bool] = False

    @abstractmethod
    def parts(self, run: RunSpec, params: P) -> Mapping[str, SubQuestion]:
        """Return the questions to combine, by name, in the order in which the answer has them."""

    @abstractmethod
    def compose(self, results: Mapping[str, Result], run: RunSpec, params: P) -> Result:
        """Combine the answers to all parts; this must be cheap."""


@dataclass(frozen=True)
class ExperimentContext:
    """The model and tokens that an experiment gets.

    Attributes:
        model: a :class:`poskernel_core.forward.loaded.LoadedModel`, not shared with others.
        windows: token ids of the run that the experiment reads, ``[text, pos]``.
        words: the text of each token of the first window; empty without a tokenizer.
        decode: token ids -> the text of each.
        start_token: whether position 0 holds the start token.
        source: the pool that random tokens are drawn from.
        batch: sequences per forward pass; None: a suitable number.
        single_id: gives the id of a text that is one token.
        encode: gives the ids of a text. Both are None without a tokenizer.
        dealt: what the groups of windows consist of.
        positions: the recorded query positions.
        run: the canonical run, for an experiment that reads texts of its own.
        form: stores what there is of the result, with the number of steps done, at least 1.
        save: stores arrays of which the experiment can go on if its process ends.
        saved: what an earlier process has saved last, which did not come to the end.
        statistics: what the needed passes have gathered, by role.
        progress: takes the number of steps done and that of all; raises Cancelled after a cancel.
    """

    model: Any
    windows: Tokens
    words: list[str]
    decode: Callable[[list[int]], list[str]]
    start_token: bool
    source: TokenPool | None = None
    batch: int | None = None
    single_id: Callable[[str], int] | None = None
    encode: Callable[[str], list[int]] | None = None
    dealt: Dealt = "windows"
    positions: tuple[int, ...] = ()
    run: RunSpec | None = None
    form: Callable[[int, Result], None] = lambda done, result: None
    save: Callable[[dict[str, np.ndarray]], None] = lambda arrays: None
    saved: Mapping[str, np.ndarray] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=dict)
    progress: Progress = lambda done, total: None

    @property
    def main(self) -> StatisticsView:
        """The statistics of the only pass, or of the first one."""
        return self.statistics["main"]

    def batches(
        self, windows: Tokens, size: int = 0, done: int = 0, total: int | None = None
    ) -> Iterator[tuple[range, Any]]:
        """Yield batches of windows for the model: their numbers, and token ids ``[text, pos]``.

        Progress is told before each and at the end: windows, ``done`` of them before, of ``total``
        (default: these windows; 0: nothing is told). ``size`` is how many fit into memory, if the
        execution does not say; 0: they are read one by one.
        """
        import torch

        size = (self.batch or size) if size else 1
        total = len(windows) if total is None else total
        tell = self.progress if total else lambda *_: None
        for first in range(0, len(windows), size):
            tell(done + first, total)
            some = range(first, min(first + size, len(windows)))
            rows = np.ascontiguousarray(windows[some.start : some.stop])
            yield some, torch.from_numpy(rows)
        tell(done + len(windows), total)


class Experiment(Question[P]):
    """A question that runs the model again, with changes.

    An experiment that reads many windows is marked ``long``. It waits in the queue of the passes,
    so that short experiments do not wait behind it. An experiment marked ``draws`` generates its
    sequences from random tokens.

    ``runs`` names the function that runs the model: a function of the topic's ``experiment.py``,
    or, as ``module:function``, of a module in its ``experiment/``. The function needs torch, so it
    is imported lazily.
    """

    gathers: ClassVar[tuple[Gather, ...] | None] = ()
    ignores = OWN_PASS | {"dtype", "queries_per_position", "until"}
    long: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    runs: ClassVar[str]

    @classmethod
    def estimated(
        cls,
        subject: ExperimentContext,
        params: Params,
        kept: Iterable[Mapping[str, np.ndarray]],
        others: Mapping[str, np.ndarray] | None = None,
        errors: Mapping[str, np.ndarray] | None = None,
        *,
        provenance: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Result:
        """Return a result with errors and biases over groups of the windows.

        ``kept`` are the values of all windows, then without each group, of which only values that
        have errors are read. ``others``, with ``errors``, do not come from groups of windows.
        ``provenance`` adds and overrides; ``parts`` are as for :meth:`result`.
        """
        full, *without = kept
        group_errors, biases = errors_and_biases(cls.values, full, without)
        counts = {"errors": subject.dealt, "groups": len(without)}
        reported = counts if len(without) > 1 else {"errors": UNKNOWN}
        return cls.result(
            params,
            {**full, **(others or {})},
            {**group_errors, **(errors or {})},
            biases,
            provenance=reported | dict(provenance or {}),
            **parts,
        )

    def reads(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run whose tokens the experiment gets; by default the canonical run.

        An experiment that draws its sequences reads one window only.
        """
        return run.model_copy(update={"windows": 1}) if self.draws else run

    def tokens(self, run: RunSpec, params: P) -> int:
        """Return about how many tokens the model reads, not counting the passes that are needed."""
        read = run if self.draws else self.reads(run, params)
        return read.windows * read.context

    def smaller(self, run: RunSpec, params: P, tokens: int) -> tuple[str, str]:
        """Return what makes the number of tokens, and what to choose so that it is so small."""
        return FEWER

    def perform(
        self, subject: ExperimentContext, statistics: Statistics, params: P, progress: Progress
    ) -> Result:
        """Run the model and return the result; the caller adds provenance."""
        part, _, name = self.runs.rpartition(":")
        module = f"experiment.{part}" if part else "experiment"
        subject = replace(subject, statistics=statistics, progress=progress)
        result: Result = self.beside(module, name)(subject, params)
        return result
