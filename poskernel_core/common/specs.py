"""Frozen descriptions of what to compute; equal descriptions mean equal results.

A :class:`RunSpec` holds everything that determines the statistics of a pass, and nothing else.
Device and batch size belong to :class:`Execution`, which never enters a cache key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from operator import index
from os import PathLike, fspath
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from poskernel_core.common import plugins
from poskernel_core.common.errors import BadRequest, InvalidField

SCHEMA = 7
"""Version of the stored layout; raising it invalidates all older store entries."""

WORDING = 5
"""Version of the descriptions of runs and requests; raising it also invalidates shipped results."""

DEFAULT_TEXTS = 500
DEFAULT_CONTEXT = 1024
"""Tokens per window, if the model's context is long enough."""

DEFAULT_TOKEN = " the"
DEFAULT_QUERY = 400
DEFAULT_SKIP = 4
MAX_SKIP = 32
QUERIES_PER_POSITION = 64
MAX_TEXT_CHARACTERS = 100_000
DEVICE = r"^(auto|cpu|mps|cuda(:[0-9]{1,3})?)$"
BAND = 32
"""Raw scores are averaged along diagonals up to this many tokens from the main diagonal."""

Dtype = Literal["float32", "tf32", "bfloat16"]
Until = Literal["kinds", "etc"]
"""Targets: every head's kind is resolved, or every ETC is known to 5 %."""

Gather = str
"""The name of a statistic: the attribute ``name`` of its class in ``statistics``."""

ALL_GATHERED: tuple[Gather, ...] = ("keys", "queries", "patterns", "residuals", "scores")
"""Statistics gathered by default for the pages; the others are gathered by small separate passes.
"""
OF_PATTERNS: frozenset[Gather] = frozenset({"patterns", "entropy", "sinks"})
"""Those of the pages' passes that ``RunSpec.pattern_windows`` limits to the first windows, so that
the limit is part of their keys; all others read every window."""
MIN_PATTERNS = 64

STEPS = (1, 2, 3, 4)
"""Of how many default query positions one is recorded; more than one only for wide models."""
THINNED = 256
"""The longest context in which fewer query positions are recorded by default."""


class Spec(BaseModel):
    """Base of all descriptions and parameters: frozen, no unknown fields, hashable.

    Validation converts NumPy and torch values and paths to plain Python; a single text or path
    becomes the first field, such as a corpus' name. Nothing else is converted: neither ``True`` nor
    ``"4"`` is a number.

    Raises:
        InvalidField: a missing or unknown field, or an invalid value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    called: ClassVar[str]
    """The name of the described thing in messages."""

    @model_validator(mode="wrap")
    @classmethod
    def _made(cls, given: Any, make: Callable[[Any], Any], info: Any) -> Any:
        given = plain_python(given)
        if isinstance(given, str):
            given = {next(iter(cls.model_fields)): given}
        try:
            return make(given)
        except ValidationError as error:
            of = (info.context or {}).get("of", cls.called)
            refusal = InvalidField(_refusal(error, of))
            refusal.of = cls.called
            refusal.field = ".".join(map(str, error.errors()[0]["loc"]))
            raise refusal from error

    def digest(self, **more: Any) -> str:
        """Return the hex SHA-256 of this description (and ``more``) in canonical JSON."""
        return digest({"schema": WORDING, "spec": self.model_dump(mode="json"), **more})


def plain_python(value: Any) -> Any:
    """Convert NumPy and torch values and paths to plain Python; lists become tuples."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {name: plain_python(item) for name, item in value.items()}
    if hasattr(value, "tolist") and not isinstance(value, type):  # of NumPy and torch
        value = value.tolist()
    elif type(value).__module__ == "torch":  # a device, a precision
        return str(value).removeprefix("torch.")
    return tuple(map(plain_python, value)) if isinstance(value, list | tuple | range) else value


def brief(value: object) -> str:
    """Return a short representation of an unexpected value for an error message."""
    if isinstance(value, str):
        return repr(value[:80])
    return " ".join(repr(value).split())[:80]


def whole(value: Any, what: str) -> int:
    """Return an integer of Python, NumPy or torch as an int.

    Raises:
        BadRequest: ``value`` is not a whole number.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)
    except TypeError as error:
        raise BadRequest(f"Expected a whole number as {what}, got {brief(value)}.") from error


def _refusal(error: ValidationError, of: str) -> str:
    first = error.errors()[0]
    place, kind, got = ".".join(map(str, first["loc"])), first["type"], brief(first["input"])
    if kind == "missing":
        return f"{of!r} needs {place!r}, and it is not given."
    if kind == "model_type":
        return f"Expected a name, a path or a dictionary of fields as {of!r}, got {got}."
    begin = f"Parameter {place!r} of {of!r}: " if place else ""
    if kind == "value_error":  # raised by our own validator
        return f"{begin}{first['ctx']['error']}"
    if kind == "extra_forbidden":
        return f"{begin}there is no such one, got {got}."
    return f"{begin}{first['msg'].lower()}, got {got}."


def digest(value: Any) -> str:
    """Return the hex SHA-256 of a JSON value, independent of the order of its fields."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class ModelSpec(Spec):
    """A model: name or directory, revision, and fingerprint of its weights."""

    called = "model"

    name: str
    revision: str | None = None
    fingerprint: str = ""
    angles: Literal["by length"] | None = Field(
        None,
        description="'by length' if the rotary angles depend on the length of a text",
        exclude_if=lambda angles: angles is None,  # so that keys of other models stay
    )
    tokenizer: str | None = Field(
        None,
        description="what its tokenizer is read with beyond tokenizer.json, and what is taken off",
        exclude_if=lambda tokenizer: tokenizer is None,  # the same
    )


class CorpusSpec(Spec):
    """A corpus: a corpus or file name, one item of it, or a typed text."""

    called = "corpus"

    name: str = "sample"
    item: str | None = Field(None, description="one named text of the corpus, such as a chapter")
    text: str | None = Field(None, max_length=MAX_TEXT_CHARACTERS, description="text as typed")
    whole: bool = Field(False, description="refuse a single text that is longer than the context")
    revision: str | None = None
    fingerprint: str = ""


AnyModel = str | PathLike[str] | Mapping[str, Any] | ModelSpec
AnyCorpus = str | PathLike[str] | Mapping[str, Any] | CorpusSpec
"""What specifies a model or a corpus: its name or path, its fields, or its description."""


class RunSpec(Spec):
    """One pass: a model, token windows, and the statistics to gather.

    ``destination`` replaces the last token of every window by one fixed token (the posts' fixed
    destination token). ``positions`` are the query positions whose queries and mean attention rows
    are kept. ``until`` may end a run early, at a target: the rule is part of the run, the number of
    windows read part of the pass' header. ``pattern_windows`` limits the slowest part: if it is
    set, statistics of attention patterns use only the first ``pattern_windows`` windows. All other
    statistics use all windows.
    """

    called = "run"

    model: ModelSpec
    corpus: CorpusSpec
    context: int = Field(ge=1, description="T, tokens per window")
    windows: int = Field(DEFAULT_TEXTS, ge=1, description="windows of text at most")
    start_token: bool = True
    dtype: Dtype = "float32"
    seed: int = Field(0, ge=0)
    positions: tuple[int, ...]
    queries_per_position: int = Field(
        QUERIES_PER_POSITION, ge=1, description="queries kept per position"
    )
    gather: tuple[Gather, ...] = ALL_GATHERED
    destination: str | None = None
    repeat_every: int | None = Field(
        None, ge=2, description="spacing of the tokens that are replaced by their predecessor"
    )

    until: Until | None = Field(
        None,
        description="what ends a run before its last window; None: nothing",
        exclude_if=lambda until: until is None,  # so that keys of runs without a target stay
    )
    pattern_windows: int | None = Field(
        None,
        ge=MIN_PATTERNS,
        description="first windows whose attention is formed; None: all of them",
    )

    def key(self, **more: Any) -> str:
        """Return the store key of this run and ``more``, with the model's prefix."""
        return f"{model_prefix(self.model.fingerprint)}{self.digest(**more)}"

    def without(self, fields: Collection[str]) -> RunSpec:
        """Return the run with these fields reset to their defaults."""
        context = DEFAULT_CONTEXT if "context" in fields else self.context
        steps = STEPS if context == self.context <= THINNED else STEPS[:1]
        every = [default_positions(context, step=step) for step in steps]
        plain = RunSpec(
            model=self.model,
            corpus=CorpusSpec(),
            context=context,
            # of a wide model, those of its default run
            positions=next((some for some in every if {*some} <= {*self.positions}), every[0]),
        )
        return self.model_copy(update={name: getattr(plain, name) for name in fields})

    @field_validator("positions")
    @classmethod
    def _ascending(cls, positions: tuple[int, ...]) -> tuple[int, ...]:
        if not positions or list(positions) != sorted(set(positions)) or positions[0] < 0:
            raise ValueError(f"positions must be ascending and distinct, not {positions}")
        return positions


class Execution(Spec):
    """Device and batch size of a run; they change its speed, not its result."""

    called = "execution"

    device: str = Field("auto", pattern=DEVICE)
    batch: int | None = Field(None, ge=1, description="windows per forward pass")
    all_windows: bool = Field(False, description="refuse a corpus with fewer windows than asked")


class Request(Spec):
    """One result: an analysis, its run, and its parameters."""

    called = "request"

    analysis: str
    run: RunSpec
    params: dict[str, Any] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """The store key of the result, with the model's prefix; a plugin has its own keys."""
        package = plugins.package_of(self.analysis)
        more = {"kind": "result"} | ({"package": package} if package else {})
        return f"{model_prefix(self.run.model.fingerprint)}{self.digest(**more)}"


def model_prefix(fingerprint: str) -> str:
    """Return the common prefix of all store keys of this layout and one model's weights."""
    return f"{digest([SCHEMA, fingerprint])[:16]}-"


def ascending(positions: Any) -> tuple[int, ...]:
    """Return the distinct positions in ascending order.

    Raises:
        BadRequest: a position is not a whole number.
    """
    several = plain_python(positions)
    if not isinstance(several, tuple):
        raise BadRequest(f"Expected whole numbers as query positions, got {brief(positions)}.")
    return tuple(sorted({whole(position, "query position") for position in several}))


def default_positions(context: int, *also: int, step: int = 1) -> tuple[int, ...]:
    """Return the default query positions: 32 evenly spaced, the posts' 400 and 1000, and ``also``.

    With a ``step``, one of so many, up to the last.

    Raises:
        BadRequest: a position of ``also`` lies outside ``0 .. context - 1``.
    """
    for position in also:
        if not 0 <= position < context:
            raise BadRequest(
                f"Query position {position} is outside the context: choose 0 to {context - 1}."
            )
    spacing = max(1, context // 32)
    grid = {*range(spacing - 1, context, spacing), context - 1}
    grid |= {n for n in (DEFAULT_QUERY, 1000) if n < context}
    return tuple(sorted({*sorted(grid)[::-step], *also}))
