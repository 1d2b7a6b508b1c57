"""What the groups of texts of a run begin with, so that a reader knows them."""

import json
from contextlib import suppress
from functools import lru_cache, partial

from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.groups import groups_of
from poskernel_core.common.specs import RunSpec
from poskernel_core.data.corpora import resolve, token_windows
from poskernel_core.data.texts import HUB, TYPED
from poskernel_core.models.catalog import find_again
from poskernel_core.models.tokenizers import load_tokenizer

NAMED, LETTERS = 3, 40
"""Texts of a group that are quoted, and characters of each."""


@lru_cache(maxsize=16)
def group_beginnings(run: RunSpec, windows: int) -> tuple[str, ...]:
    """Return what the texts of each group begin with: ``"Once upon", "It was" and 7 more``.

    The corpus is cut again, into the ``windows`` that were read. Documents are quoted by their
    first words; a stretch of a text, or of ready windows, by those of its first window. It is empty
    for a typed text and for a corpus of the hub, which would be streamed again, and where corpus or
    tokenizer are not on this machine or are others by now.
    """
    spec = run.corpus
    if spec.name in (TYPED, *HUB):
        return ()
    with suppress(PosKernelError):
        located = find_again(run.model)
        tokenizer = load_tokenizer(located)
        same = located.spec.fingerprint == run.model.fingerprint
        if tokenizer is None or not same or resolve(spec).fingerprint != spec.fingerprint:
            return ()
        cut = partial(
            token_windows,
            spec,
            tokenizer,
            context=run.context,
            start_token=run.start_token,
            seed=run.seed,
            cut=run.destination is not None,
        )
        texts = cut(windows=windows).beginnings
        if not texts:  # a target may have ended the run, whose windows decide the stretches
            firsts = cut(windows=run.windows).tokens[: groups_of(windows), :LETTERS].tolist()
            texts = tuple((tokenizer.backend.decode(row),) for row in firsts)
        return tuple(map(first_words, texts))
    return ()


def first_words(texts: tuple[str, ...]) -> str:
    """Return the first words of some texts in quotes, on one line, and how many more there are."""
    lines = ("".join(c if c.isprintable() else " " for c in text).split() for text in texts)
    short = [
        line if len(line) <= LETTERS else f"{line[: LETTERS - 1].rstrip()}…"
        for line in filter(None, map(" ".join, lines))
    ]
    quotes = ", ".join(json.dumps(line, ensure_ascii=False) for line in short[:NAMED])
    more = len(short) - NAMED
    return f"{quotes} and {more} more" if more > 0 else quotes
