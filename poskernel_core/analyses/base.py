"""What an analysis and an experiment are, and what they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from threading import Event, Lock
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from pydantic import ConfigDict, Field

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import Cancelled
from poskernel_core.common.groups import Dealt
from poskernel_core.common.jackknife import bias, jackknife
from poskernel_core.common.result import Result, Value, texts_array
from poskernel_core.common.specs import DEFAULT_QUERY, DEFAULT_SKIP, MAX_SKIP, RunSpec, Spec
from poskernel_core.common.views import StatisticsView, without
from poskernel_core.data.layouts import TokenPool
from poskernel_core.models.fragments import Part
from poskernel_core.models.geometry import Geometry

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all); raises Cancelled when somebody cancelled."""


KEPT_QUERIES = frozenset({"positions", "queries_per_position"})
"""The fields of a run that say which queries a pass keeps."""

OWN_PASS = frozenset({"gather", "pattern_windows"})
"""The fields that do not matter where a question gathers what it needs, and no attention."""

UNKNOWN = "nothing"
"""What errors count where none is known: of one text, or of statistics without groups of texts."""

POLLED = 0.1
"""Seconds after which an analysis at the latest says how far it is, and learns of a cancel."""

OWN_WINDOWS = frozenset({"windows", "positions", "destination", "repeat_every"})
"""The fields that do not matter where an experiment says itself which windows it reads."""

Statistics = Mapping[str, StatisticsView]
"""The statistics that an answer stands on, by role."""


class Params(Spec):
    """Parameters of an analysis; every field becomes an option of the command line."""

    model_config = ConfigDict(validate_default=True)

    called = "analysis"


class SkipParams(Params):
    """Parameters of everything that leaves out the first key positions."""

    skip: int = Field(DEFAULT_SKIP, ge=0, le=MAX_SKIP, description="first key positions left out")


P = TypeVar("P", bound=Params)


class Question(ABC, Generic[P]):
    """What can be asked of a run: its parameters, and the passes that the answer stands on.

    Attributes:
        questions: every question there is, by name; the registry sets them.
        name: what it is requested by.
        title: its heading.
        noun_phrase: the noun phrase that completes "Computing ...".
        params: the class of its parameters.
        values: what its answer holds; axes and units are those declared here.
        texts: its string-valued outputs, declared the same way.
        ignores: the fields of a run that its answer does not depend on.
        uses: the model parts that this question requires.
        scheme: the position scheme that it is about, such as ``rotary``; empty: any.
        measures: what the grid of all heads can be coloured by.
        figure: the function of the topic's ``figures.py`` that draws an answer; none: by its axes.
        precomputed: whether ``precompute`` makes it: always, with ``--experiments``, or never.
        error_counts: what the errors count where the answer does not say so, as it reads after
            "Errors count".
    """

    questions: ClassVar[Mapping[str, Question[Any]]]
    name: ClassVar[str]
    title: ClassVar[str]
    noun_phrase: ClassVar[str]
    params: type[P]
    values: ClassVar[tuple[Value, ...]]
    texts: ClassVar[tuple[Value, ...]] = ()
    ignores: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[tuple[Part, ...]] = ()
    scheme: ClassVar[str] = ""
    measures: ClassVar[tuple[HeadMeasure, ...]] = ()
    figure: ClassVar[str] = ""
    precomputed: ClassVar[Literal["always", "experiments", "never"]] = "never"
    error_counts: ClassVar[str] = ""

    @classmethod
    def result(
        cls,
        params: Params,
        values: Mapping[str, np.ndarray],
        errors: Mapping[str, np.ndarray] | None = None,
        biases: Mapping[str, np.ndarray] | None = None,
        *,
        labels: Mapping[str, tuple[str, ...]] | None = None,
        coordinates: Mapping[str, np.ndarray] | None = None,
        texts: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Result:
        """Return an answer: the values given, with the axes and units that are declared for them.

        ``texts`` are nested lists of strings.

        Raises:
            ValueError: a value, a text, an error or a bias that is not declared.
        """
        declared = {value.name: value for value in cls.values}
        strings = {text.name: text for text in cls.texts}
        errors, biases, texts = dict(errors or {}), dict(biases or {}), texts or {}
        odd = (values.keys() - declared.keys()) | (texts.keys() - strings.keys())
        odd |= (errors.keys() | biases.keys()) - {v.name for v in cls.values if v.has_error}
        if odd:
            raise ValueError(f"{cls.name!r} does not declare {sorted(odd)}, or not with errors")
        known = {name: (declared | strings)[name] for name in (*values, *texts)}
        told = {"errors": cls.error_counts} if errors and cls.error_counts else {}
        return Result(
            analysis=cls.name,
            params=params.model_dump(),
            values=dict(values),
            axes={name: value.axes for name, value in known.items()},
            units={name: value.unit for name, value in known.items()},
            errors=errors,
            biases=biases,
            texts={name: texts_array(text) for name, text in texts.items()},
            labels=dict(labels or {}),
            coordinates=dict(coordinates or {}),
            provenance=told | dict(provenance or {}),
        )

    @classmethod
    def beside(cls, module: str, name: str) -> Callable[..., Any]:
        """Return a function of the topic's folder; its module is imported when asked for."""
        topic = cls.__module__.rpartition(".")[0]
        found: Callable[..., Any] = getattr(import_module(f"{topic}.{module}"), name)
        return found

    def default_query(self, context: int) -> int:
        """Return the query position shown first: the posts' 400, or the last of a short context."""
        return min(DEFAULT_QUERY, context - 1)

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        """Return the parameters asked for first where the defaults do not fit a model."""
        return {}

    def canonical(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run as far as the answer depends on it, so that equal answers share a key.

        Raises:
            BadRequest: the parameters do not fit the run.
        """
        return self.with_params(run.without(self.ignores), params)

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run with those fields that the parameters decide.

        Raises:
            BadRequest: the parameters do not fit the run.
        """
        return run

    @abstractmethod
    def needs(self, run: RunSpec, params: P) -> Mapping[str, RunSpec]:
        """Return the passes whose statistics are needed, by role.

        Raises:
            BadRequest: the parameters do not fit the run.
        """


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Let NumPy multiply in the calling thread alone: its products are small, the threads ours.

    The limit is the process' own, so one answer at a time has it, and gives it back.
    """
    from threadpoolctl import ThreadpoolController  # not where nothing is computed

    with _LIMITING, ThreadpoolController().select(internal_api="openblas").limit(limits=1):
        yield


_LIMITING = Lock()


def _errors(
    declared: Sequence[Value],
    whole: Mapping[str, np.ndarray],
    without: Sequence[Mapping[str, np.ndarray]],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the errors and biases that the values without each group give."""
    errors, biases = {}, {}
    for value in declared:
        if not value.has_error or value.name not in whole:
            continue
        found = whole[value.name].astype(np.float64)
        each = np.array([one[value.name] for one in without], dtype=np.float64)
        each = np.where(np.isnan(found), np.nan, each.reshape(len(without), *found.shape))
        if value.unit == "radians":  # the nearest turn
            each = found + np.angle(np.exp(1j * (each - found)))
        errors[value.name], biases[value.name] = jackknife(each), bias(found, each)
    return errors, biases


class Analysis(Question[P]):
    """A pure function from statistics to a result; role ``main`` is the canonical run itself."""

    @abstractmethod
    def compute(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the values; errors and provenance are added by whoever calls."""

    def replicate(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the values that have errors once more; overridden where others take long."""
        return self.compute(statistics, params, progress)

    def answer(self, statistics: Statistics, params: P, progress: Progress) -> Result:
        """Compute the result with the errors and biases of its numbers over groups of texts."""
        if not any(value.has_error for value in self.values):
            return self.compute(statistics, params, progress)
        return self.jackknifed(statistics, params, progress)[0]

    def jackknifed(
        self, statistics: Statistics, params: P, progress: Progress
    ) -> tuple[Result, list[Result]]:
        """Return the result with errors and biases, and the results without each group of texts.

        All is computed again without each group, in every pass that has as many groups.
        """
        header = statistics["main"].header
        left_out = [
            {
                role: without(view, group) if view.header.groups == header.groups else view
                for role, view in statistics.items()
            }
            for group in range(header.groups if header.groups > 1 else 0)
        ]
        stop = Event()

        def go_on(_done: int, _total: int) -> None:
            if stop.is_set():
                raise Cancelled("Cancelled.")

        with _one_blas_thread(), ThreadPoolExecutor(max_workers=2) as pool:
            first = pool.submit(self.compute, statistics, params, go_on)
            work = [first, *(pool.submit(self.replicate, one, params, go_on) for one in left_out)]
            left = set(work)
            try:
                while left:
                    done, left = wait(left, timeout=POLLED, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    progress(len(work) - len(left), len(work))
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
        whole, *replicates = (future.result() for future in work)
        counts = {"errors": header.dealt, "groups": header.groups}
        errors, biases = _errors(self.values, whole.values, [one.values for one in replicates])
        made = whole.provenance | (counts if replicates else {"errors": UNKNOWN})
        return replace(whole, errors=errors, biases=biases, provenance=made), replicates


@dataclass(frozen=True)
class SubQuestion:
    """A question of a run that another answer stands on."""

    question: Question[Any]
    run: RunSpec
    params: Params


class Composition(Question[P]):
    """A question whose answer is put together from the answers to others.

    Each of these is a result of its own, stored under its own key. What is put together is not
    stored, and so it is never older than what it is made of.
    """

    @abstractmethod
    def parts(self, run: RunSpec, params: P) -> Mapping[str, SubQuestion]:
        """Return the questions that it stands on, by name, in the order of the answer.

        Raises:
            BadRequest: the parameters do not fit the run.
        """

    @abstractmethod
    def compose(self, found: Mapping[str, Result], run: RunSpec, params: P) -> Result:
        """Return the answer from those of all parts; arithmetic on a few numbers, no more."""

    def needs(self, run: RunSpec, params: P) -> Mapping[str, RunSpec]:
        """Return nothing: its parts say themselves which passes they stand on."""
        return {}


@dataclass(frozen=True)
class HeadMeasure:
    """One number, or one kind, of every head, which the grid of all heads can be coloured by.

    Attributes:
        title: what it is called in the list of measures.
        value: the name of the value, ``[layer, head]`` at one query position.
        unit: next to the legend; an arrow says which direction is better.
        reading: one sentence on what dark and bright mean.
        scale: how numbers become colours: ``linear`` from 0, ``unit`` from 0 to 1, ``log``,
            ``diverging`` around 0, ``cosine`` (unit or diverging), ``labels`` for codes.
        floor: on a log scale, what smaller numbers are drawn as.
        most: the value whose largest number ends a log scale that begins at 1.
        last: an axis of which the last entry is taken.
        only: the architectures that have it; empty: all.
        of_windows: whether it is only for models with windowed or chunked layers.
    """

    title: str
    value: str
    unit: str
    reading: str = ""
    scale: Literal["linear", "unit", "log", "diverging", "cosine", "labels"] = "linear"
    floor: float | None = None
    most: str = ""
    last: str = ""
    only: tuple[str, ...] = ()
    of_windows: bool = False


@dataclass(frozen=True)
class ExperimentContext:
    """What an experiment works on.

    Attributes:
        model: a loaded model (``models.LoadedModel``), this experiment's alone.
        windows: token ids of the run that it reads, ``[text, pos]``.
        words: the text of each token of the first window; empty without a tokenizer.
        decode: token ids -> the text of each.
        start_token: whether position 0 holds the start token.
        source: what random tokens are drawn from.
        batch: sequences per forward pass; None: a suitable number.
        single_id, encode: a text -> its one token's id, its ids; None without a tokenizer.
        dealt: what the groups are made of that the windows belong to.
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


class Experiment(Question[P]):
    """A question whose answer needs the model itself: it is run again, with changes.

    One that reads many windows is ``long``: it waits its turn with the passes, so that short ones
    are answered meanwhile. One that ``draws`` makes its sequences itself, from random tokens.

    ``runs`` names the function that runs the model: of the topic's ``experiment.py``, or, as
    ``module:function``, of a module of its ``experiment/``. It needs torch, so nobody imports it
    before it is called.
    """

    ignores = OWN_PASS | {"dtype", "queries_per_position"}
    long: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    runs: ClassVar[str]

    @classmethod
    def estimated(
        cls,
        subject: ExperimentContext,
        params: Params,
        whole: Mapping[str, np.ndarray],
        without: Sequence[Mapping[str, np.ndarray]],
        others: Mapping[str, np.ndarray] | None = None,
        errors: Mapping[str, np.ndarray] | None = None,
        *,
        provenance: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Result:
        """Return an answer with the errors and biases over groups of the windows that it reads.

        Args:
            subject: what it works on.
            params: its parameters.
            whole: the values of all windows.
            without: those without each group; only what has errors is looked at.
            others: values that do not come from groups of windows.
            errors: the errors of these.
            provenance: what else is to be told, or told otherwise.
            **parts: as for :meth:`result`.
        """
        found, biases = _errors(cls.values, whole, without)
        counts = {"errors": subject.dealt, "groups": len(without)}
        told = counts if len(without) > 1 else {"errors": UNKNOWN}
        return cls.result(
            params,
            {**whole, **(others or {})},
            {**found, **(errors or {})},
            biases,
            provenance=told | dict(provenance or {}),
            **parts,
        )

    def reads(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run whose tokens it gets; by default the canonical run.

        Of one that draws its sequences a single window is read.

        Raises:
            BadRequest: the parameters name no text.
        """
        return run.model_copy(update={"windows": 1}) if self.draws else run

    def tokens(self, run: RunSpec, params: P) -> int:
        """Return about how many tokens the model reads for it, besides the passes it needs.

        Raises:
            BadRequest: the parameters name no text.
        """
        read = run if self.draws else self.reads(run, params)
        return read.windows * read.context

    def perform(
        self, subject: ExperimentContext, statistics: Statistics, params: P, progress: Progress
    ) -> Result:
        """Run the model and return the result; provenance is added by whoever calls.

        Raises:
            BadRequest: the parameters do not fit the model or the text.
        """
        part, _, name = self.runs.rpartition(":")
        module = f"experiment.{part}" if part else "experiment"
        result: Result = self.beside(module, name)(subject, statistics, params, progress)
        return result
