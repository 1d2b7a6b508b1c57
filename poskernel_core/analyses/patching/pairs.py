"""Sets of pairs of prompts: what a question about one gets, checked and cut into tokens."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from poskernel_core.analyses.base import ExperimentContext, Params
from poskernel_core.analyses.patching import makers
from poskernel_core.analyses.patching.tables import COLUMNS, PromptPair, as_table, read_table
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import groups_of
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS

__all__ = ["PairsParams", "PromptPair", "TokenPair", "by_length", "groups_of_pairs", "token_pairs"]

MADE = 40
"""Pairs that a maker makes by default."""
MAX_MADE = 1000
MAX_NAMED = 4
"""Most bad rows that are named."""
SPAN = re.compile(r"\{([A-Za-z_][\w ]*):([^{}]*)\}")
"""A span in a prompt with its name: of ``When{who: Mary} and``, ``When Mary and`` is read."""
END = "end"
"""The span that every pair has, its last token."""

Ids = tuple[int, ...]


class PairsParams(Params):
    """Parameters that name a set of pairs, given in a table or made; without either, no set."""

    pairs: str = Field(
        "",
        max_length=MAX_TEXT_CHARACTERS,
        description="a set of pairs in place of one: a table (CSV or JSONL) with the columns "
        f"{', '.join(COLUMNS)}, and template if some are alike, or a list of such rows",
        exclude_if=lambda pairs: not pairs,  # so that keys of a single pair stay
    )
    maker: Literal["names", "copying", "order", "counting"] | None = Field(
        None,
        description="makes a set: two names and one of them again, random tokens twice, tokens in "
        "another order, or numbers and letters counted on",
        exclude_if=lambda maker: not maker,  # the same
    )
    count: int = Field(
        MADE,
        ge=2,
        le=MAX_MADE,
        description="pairs that the maker makes",
        exclude_if=lambda count: count == MADE,  # the same
    )
    skip_bad: bool = Field(
        False,
        description="leave out rows of the table that cannot be used",
        exclude_if=lambda skip_bad: not skip_bad,  # the same
    )

    @field_validator("pairs", mode="before")
    @classmethod
    def _table(cls, given: Any) -> str:
        return as_table(given) if given else ""

    @property
    def of_set(self) -> bool:
        """Whether a set is asked about."""
        return bool(self.pairs or self.maker)

    @property
    def rows(self) -> int:
        """The number of pairs in the set."""
        return self.count if self.maker else self.pairs.count("\n") + 1

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens all prompts of the set have."""
        return 4 * makers.HALF * self.count if self.maker else max(1, len(self.pairs) // 4)


@dataclass(frozen=True)
class TokenPair:
    """A pair that can be run.

    Attributes:
        clean: token ids of the clean prompt, the start token first if the run has one.
        changed: those of the changed one, equally many.
        answer: id of the answer to the clean prompt.
        other_answer: id of that to the changed one.
        template: what it was made of; pairs of one template are not independent. Empty: unknown.
        spans: by name, where it stands in the clean and in the changed prompt.
    """

    clean: Ids
    changed: Ids
    answer: int
    other_answer: int
    template: str = ""
    spans: Mapping[str, tuple[slice, slice]] = field(default_factory=dict)


def token_pairs(subject: ExperimentContext, params: PairsParams) -> list[TokenPair]:
    """Return the pairs of a set that can be run, in the order of its rows.

    Raises:
        BadRequest: some rows cannot be used, with their numbers and the reasons, and are not to be
            left out; or the maker finds too little in the vocabulary.
    """
    if subject.encode is None and params.maker not in makers.OF_TOKENS:
        raise BadRequest("A set of pairs needs a tokenizer, and the model has none.")
    rows, pairs, bad = _rows(subject, params), list[TokenPair](), list[str]()
    context = subject.run.context if subject.run else subject.model.geometry.n_ctx
    answer_of = cache(partial(answer_id, subject))
    for number, row in enumerate(rows, 1):
        try:
            pair = _cut(subject, row, answer_of) if isinstance(row, PromptPair) else row
            pairs.append(_with_start(subject, pair, context))
        except BadRequest as error:
            bad.append(f"row {number}: {str(error).removesuffix('.')}")
    if bad and not (params.skip_bad and pairs):
        more = f"; and {len(bad) - MAX_NAMED:,} more" * (len(bad) > MAX_NAMED)
        way = "mend these, or leave them out" if pairs else "mend these"
        raise BadRequest(
            f"{len(bad):,} of {counted(len(rows), 'row')} cannot be used: {way} "
            f"({'; '.join(bad[:MAX_NAMED])}{more})."
        )
    return pairs


def groups_of_pairs(pairs: Sequence[TokenPair]) -> np.ndarray:
    """Return the group of each pair, ``[pair]``: ten, or fewer if fewer are independent.

    All pairs of a template are in one group; those without one are independent.
    """
    names = [pair.template or number for number, pair in enumerate(pairs)]
    order = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([order[name] for name in names], dtype=np.int64) % max(1, groups_of(len(order)))


def by_length(
    pairs: Sequence[TokenPair], size_of: Callable[[int], int]
) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]]:
    """Yield batches of equally long pairs, of a size by their length.

    Each is their numbers ``[pair]``, and the ids of their clean and changed prompts ``[pair,
    pos]``.
    """
    lengths = defaultdict[int, list[int]](list)
    for number, pair in enumerate(pairs):
        lengths[len(pair.clean)].append(number)
    for length, numbers in lengths.items():
        size = size_of(length)
        for some in np.split(np.array(numbers), range(size, len(numbers), size)):
            both = [(pairs[number].clean, pairs[number].changed) for number in some]
            clean, changed = np.array(both, dtype=np.int64).transpose(1, 0, 2)
            yield some, (clean, changed)


def answer_id(subject: ExperimentContext, text: str) -> int:
    """Return the id of an answer, tried with a leading space if it is no token without one.

    Raises:
        BadRequest: it is several tokens.
    """
    assert subject.single_id is not None
    try:
        return subject.single_id(text)
    except BadRequest:
        with suppress(BadRequest):
            return subject.single_id(f" {text}")
        raise


def _rows(subject: ExperimentContext, params: PairsParams) -> Sequence[PromptPair | TokenPair]:
    """Return the rows of a table, or those that a maker makes."""
    if not params.maker:
        return read_table(params.pairs)
    assert subject.source is not None
    generator = np.random.default_rng([subject.source.seed, MAX_MADE])
    rows: Iterator[PromptPair | TokenPair]
    if subject.encode is not None and params.maker in makers.OF_TEXTS:
        rows = makers.OF_TEXTS[params.maker](subject.encode, generator)
    elif len(subject.source.pool) >= makers.HALF:
        drawn = makers.OF_TOKENS[params.maker](subject.source.pool, generator)
        rows = (_of_tokens(*sample) for sample in drawn)
    else:
        rows = iter(())
    made = [*islice(rows, params.count)]
    if len(made) < params.count:
        raise BadRequest(
            f"The maker {params.maker!r} finds {counted(len(made), 'pair')} in this vocabulary, "
            f"and {params.count:,} were asked for: ask for fewer, choose another maker, or give "
            "pairs."
        )
    return made


def _of_tokens(
    clean: list[int], changed: list[int], places: Mapping[str, tuple[int, int]]
) -> TokenPair:
    spans = {name: (slice(a, a + 1), slice(b, b + 1)) for name, (a, b) in places.items()}
    return TokenPair((*clean[:-1],), (*changed[:-1],), clean[-1], changed[-1], "", spans)


def _cut(subject: ExperimentContext, row: PromptPair, answer_of: Callable[[str], int]) -> TokenPair:
    """Return a row as tokens, without the start token."""
    if empty := [name for name in COLUMNS if not getattr(row, name).strip()]:
        raise BadRequest(f"{' and '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty")
    (clean, one), (changed, other) = (_spans(subject, text) for text in (row.clean, row.changed))
    if odd := sorted(one.keys() ^ other.keys()):
        raise BadRequest(f"the span {odd[0]!r} is in one prompt alone")
    for name, both in ((name, (one[name], other[name])) for name in one):
        few, many = (span.stop - span.start for span in both)
        if few != many:
            raise BadRequest(
                f"the span {name!r} has {counted(few, 'token')} in one prompt, {many} in the other"
            )
    if len(clean) != len(changed):
        raise BadRequest(
            f"the prompts have {len(clean)} and {len(changed)} tokens, expected equally many"
        )
    if clean == changed:
        raise BadRequest("both prompts are equal")
    answer, other_answer = answer_of(row.answer), answer_of(row.other_answer)
    if answer == other_answer:
        raise BadRequest(f"both answers are {row.answer!r}")
    spans = {name: (one[name], other[name]) for name in one}
    return TokenPair(clean, changed, answer, other_answer, row.template, spans)


def _spans(subject: ExperimentContext, text: str) -> tuple[Ids, dict[str, slice]]:
    """Return the ids of a prompt, and the tokens of each span in it."""
    assert subject.encode is not None
    plain, places, last = "", dict[str, tuple[int, int]](), 0
    for span in SPAN.finditer(text):
        plain += text[last : span.start()]
        places[span[1]], last = (len(plain), len(plain) + len(span[2])), span.end()
        plain += span[2]
    plain += text[last:]
    ids, spans = subject.encode(plain), {}
    if max(ids, default=0) >= subject.model.geometry.n_vocab:
        raise BadRequest(f"{plain[:40]!r} has tokens that are not in the vocabulary")
    for name, ends in places.items():
        first, end = (in_common(subject.encode(plain[:place]), ids) for place in ends)
        if end <= first:
            raise BadRequest(f"the span {name!r} holds no whole token")
        spans[name] = slice(first, end)
    return tuple(ids), spans


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two texts have in common at their beginning."""
    both = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in both if a != b), min(len(one), len(other)))


def _with_start(subject: ExperimentContext, pair: TokenPair, context: int) -> TokenPair:
    """Return a pair with the start token first, and the span of its last token."""
    start = tuple(subject.windows[0, : int(subject.start_token)].tolist())
    shift, length = len(start), len(start) + len(pair.clean)
    if length > context:
        raise BadRequest(f"{counted(length, 'token')}, and the context is {context:,}")
    spans = {
        name: (slice(a.start + shift, a.stop + shift), slice(b.start + shift, b.stop + shift))
        for name, (a, b) in pair.spans.items()
    }
    spans[END] = (slice(length - 1, length),) * 2
    both = start + pair.clean, start + pair.changed
    return TokenPair(*both, pair.answer, pair.other_answer, pair.template, spans)
