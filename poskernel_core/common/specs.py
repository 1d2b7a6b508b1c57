"""Frozen descriptions of what to compute; equal descriptions mean equal results.

A :class:`RunSpec` holds everything that determines the statistics of a pass, and nothing
else: where and how fast it runs is an :class:`Execution`, which never enters a cache key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from operator import index
from os import PathLike, fspath
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.renamed import CHOICES, PARAMETERS, told

SCHEMA = 5
"""Version of the stored layout; raising it turns every older entry of a store into a miss."""

WORDING = 4
"""Version of how runs and requests are described; raising it turns what ships into misses too."""

DEFAULT_TEXTS = 500
DEFAULT_CONTEXT = 1024
"""Tokens per window, of a model that reads as many."""

DEFAULT_QUERY = 400
DEFAULT_SKIP = 4
MAX_SKIP = 32
QUERIES_PER_POSITION = 64
MAX_TEXT_CHARACTERS = 100_000
DEVICE = r"^(auto|cpu|mps|cuda(:[0-9]{1,3})?)$"
BAND = 32
"""Raw scores are averaged along the diagonals up to this many tokens from the main one."""

Dtype = Literal["float32", "tf32", "bfloat16"]
Gather = str
"""The name of a statistic: the attribute ``name`` of its class in ``statistics``."""

ALL_GATHERED: tuple[Gather, ...] = ("keys", "queries", "patterns", "residuals", "scores")
"""What the pass of a page gathers; the others belong to small passes of their own."""
OF_PATTERNS: frozenset[Gather] = frozenset({"patterns", "entropy", "sinks"})
"""Statistics of the attention itself, which can be gathered over the first windows alone."""
FEWEST_PATTERNS = 64


class Spec(BaseModel):
    """Base of all descriptions and parameters: frozen, no unknown fields, hashable.

    The one place where they are made from what users write. Values of NumPy and torch, and paths,
    become plain values; a text or path alone is the first field, such as a corpus' name. Nothing
    else is converted: neither ``True`` nor ``"4"`` is a number.

    Raises:
        InvalidField: a field that is missing, unknown, or of a value that it cannot have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    called: ClassVar[str]
    """What it describes, in a sentence."""

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
            raise InvalidField(_refusal(error, of, cls.model_fields)) from error

    def digest(self, **more: Any) -> str:
        """Return the hex SHA-256 of this description (and ``more``) in canonical JSON."""
        return digest({"schema": WORDING, "spec": self.model_dump(mode="json"), **more})


def plain_python(value: Any) -> Any:
    """Return what NumPy, torch or a path hands over as plain Python; lists become tuples."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {name: plain_python(each) for name, each in value.items()}
    if hasattr(value, "tolist") and not isinstance(
        value, type
    ):  # arrays and tensors, and their single numbers
        value = value.tolist()
    elif type(value).__module__ == "torch":  # a device, a precision
        return str(value).removeprefix("torch.")
    return tuple(map(plain_python, value)) if isinstance(value, list | tuple | range) else value


def brief(value: object) -> str:
    """Return what came instead of what was expected, as a sentence repeats it."""
    if isinstance(value, str):
        return repr(value[:80])
    return " ".join(repr(value).split())[:80]


def whole(value: Any, what: str) -> int:
    """Return a whole number of Python, NumPy or torch.

    Raises:
        BadRequest: ``what`` is no whole number.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)
    except TypeError as error:
        raise BadRequest(f"Expected a whole number as {what}, got {brief(value)}.") from error


def _refusal(error: ValidationError, of: str, fields: Collection[str]) -> str:
    """Return in a sentence why a description, or the parameters of a question, cannot be made."""
    for each in error.errors():
        name = each["loc"][-1] if each["loc"] else ""
        unknown = each["type"] == "extra_forbidden"
        choices = CHOICES.get(str(name), {})
        if new := told(name, PARAMETERS, fields) if unknown else told(each["input"], choices):
            return new
    first = error.errors()[0]
    place, kind, got = ".".join(map(str, first["loc"])), first["type"], brief(first["input"])
    if kind == "missing":
        return f"{of!r} needs {place!r}, and it is not given."
    if kind == "model_type":
        return f"Expected a name, a path or a dictionary of fields as {of!r}, got {got}."
    begin = f"Parameter {place!r} of {of!r}: " if place else ""
    if kind == "value_error":  # a sentence of ours
        return f"{begin}{first['ctx']['error']}"
    if kind == "extra_forbidden":
        return f"{begin}there is no such one, got {got}."
    return f"{begin}{first['msg'].lower()}, got {got}."


def digest(value: Any) -> str:
    """Return the hex SHA-256 of a JSON value, independent of the order of its fields."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class ModelSpec(Spec):
    """Which model: a name or directory, its revision, and the fingerprint of its weights."""

    called = "model"

    name: str
    revision: str | None = None
    fingerprint: str = ""


class CorpusSpec(Spec):
    """Which text: a corpus or file name, one item of it, or the text itself."""

    called = "corpus"

    name: str = "sample"
    item: str | None = Field(None, description="one named text of the corpus, such as a chapter")
    text: str | None = Field(None, max_length=MAX_TEXT_CHARACTERS, description="text as typed")
    whole: bool = Field(False, description="refuse a single text that is longer than the context")
    revision: str | None = None
    fingerprint: str = ""


AnyModel = str | PathLike[str] | Mapping[str, Any] | ModelSpec
AnyCorpus = str | PathLike[str] | Mapping[str, Any] | CorpusSpec
"""What stands for a model or a corpus: its name or path, its fields, or its description."""


class RunSpec(Spec):
    """One pass: a model over token windows, and what is gathered on the way.

    ``destination`` replaces the last token of every window by one fixed token (the posts' fixed
    destination token); ``positions`` are the query positions whose queries and mean attention
    rows are kept. ``pattern_windows`` bounds what takes longest: statistics of the attention itself
    are then gathered over so many first windows, all others over all.
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

    pattern_windows: int | None = Field(
        None,
        ge=FEWEST_PATTERNS,
        description="first windows whose attention is formed; None: all of them",
    )

    def key(self, **more: Any) -> str:
        """Return a content address under the model's prefix, for this run and ``more``."""
        return f"{model_prefix(self.model.fingerprint)}{self.digest(**more)}"

    def without(self, fields: Collection[str]) -> RunSpec:
        """Return the run with these fields as they are where nobody asks for others."""
        context = DEFAULT_CONTEXT if "context" in fields else self.context
        plain = RunSpec(
            model=self.model,
            corpus=CorpusSpec(),
            context=context,
            positions=default_positions(context),
        )
        return self.model_copy(update={name: getattr(plain, name) for name in fields})

    @field_validator("positions")
    @classmethod
    def _ascending(cls, positions: tuple[int, ...]) -> tuple[int, ...]:
        if not positions or list(positions) != sorted(set(positions)) or positions[0] < 0:
            raise ValueError(f"positions must be ascending and distinct, not {positions}")
        return positions


class Execution(Spec):
    """Where and how a run is carried out; changes the speed, not the result."""

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
        """The content address of the result, under the model's prefix."""
        return f"{model_prefix(self.run.model.fingerprint)}{self.digest(kind='result')}"


def model_prefix(fingerprint: str) -> str:
    """Return what the keys of all that is of this layout and one model's weights begin with."""
    return f"{digest([SCHEMA, fingerprint])[:16]}-"


def ascending(positions: Any) -> tuple[int, ...]:
    """Return every position once, in order.

    Raises:
        BadRequest: one that is no whole number.
    """
    several = plain_python(positions)
    if not isinstance(several, tuple):
        raise BadRequest(f"Expected whole numbers as query positions, got {brief(positions)}.")
    return tuple(sorted({whole(each, "query position") for each in several}))


def default_positions(context: int, *also: int) -> tuple[int, ...]:
    """Return the query positions of a run: 32 evenly spaced, the posts' 400 and 1000, and ``also``.

    Raises:
        BadRequest: a position of ``also`` lies outside ``0 .. context - 1``.
    """
    for position in also:
        if not 0 <= position < context:
            raise BadRequest(
                f"Query position {position} is outside the context: choose 0 to {context - 1}."
            )
    step = max(1, context // 32)
    grid = {*range(step - 1, context, step), context - 1, *also}
    grid |= {n for n in (DEFAULT_QUERY, 1000) if n < context}
    return tuple(sorted(grid))


def is_device(name: str) -> bool:
    """Tell whether a device is well formed; it need not be on this machine."""
    return re.fullmatch(DEVICE, name) is not None
