"""Cut a corpus into windows of tokens.

A corpus is bundled (``sample``, ``bible``), streamed from the hub (``openwebtext``), a local
``.txt``, ``.jsonl`` or ``.parquet`` file, text typed on a page, or a ``.npy`` file of ready
token windows. Its fingerprint is part of the cache key of all results computed from it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, TooLittleText, UnknownCorpus
from poskernel_core.common.groups import GROUPS, Dealt, groups_of, in_equal_groups
from poskernel_core.common.outside import outside
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import DEFAULT_TEXTS, CorpusSpec
from poskernel_core.data.made import RANDOM, REPEATED
from poskernel_core.data.texts import (
    BUNDLED,
    HUB,
    MARK,
    TYPED,
    commit_of,
    counted_documents,
    documents,
    find_file,
    items,
    look_at,
    npy_shape,
)
from poskernel_core.models.tokenizers import NONE_THERE, Tokenizer

READING = b"2"
"""Version of how files of texts are read; raising it invalidates results of them."""

BEGINNING = 256
"""Characters that are kept of each document's beginning."""


def offered(spec: CorpusSpec) -> CorpusSpec:
    """Resolve a corpus named by a user; refuse the internal names of generated tokens."""
    if spec.name in (REPEATED, RANDOM):
        raise UnknownCorpus(
            f"The corpus {spec.name!r} belongs to the experiments that draw their own tokens: "
            f"choose {', '.join([*BUNDLED, *HUB])}, or a file."
        )
    if outside() and spec.revision not in (None, spec.name in HUB and commit_of(HUB[spec.name])):
        raise UnknownCorpus(f"There is no such revision of {spec.name[:80]!r} here: leave it out.")
    return resolve(spec)


def resolve(spec: CorpusSpec) -> CorpusSpec:
    """Check that a corpus exists and fill in its fingerprint."""
    if spec.name == TYPED:
        if spec.text is None or not spec.text.strip():
            raise UnknownCorpus("Expected some text, got none: type or paste a few sentences.")
        # before READING 2, a mark was read, and a start token typed first was doubled
        newer = READING * spec.text.startswith(("<", "[", MARK))
        digest = hashlib.sha256(newer + spec.text.encode()).hexdigest()
        return spec.model_copy(update={"fingerprint": digest})
    if spec.name in (REPEATED, RANDOM):
        return spec.model_copy(update={"fingerprint": spec.name})
    if spec.name in HUB:
        pinned = spec.revision or commit_of(HUB[spec.name])
        return spec.model_copy(update={"revision": pinned, "fingerprint": f"hub@{pinned}"})
    path = find_file(spec.name)
    if spec.item is not None and spec.item not in (named := items(spec.name)):
        some = ", ".join(named[:8]) or "no texts with a name"
        raise UnknownCorpus(
            f"Corpus {spec.name!r} has no text {spec.item!r}; it has: {some}"
            f"{' and more' if len(named) > 8 else ''}."
        )
    stat = path.stat()
    return spec.model_copy(
        update={"fingerprint": _file_sha(str(path), stat.st_size, stat.st_mtime_ns)}
    )


def check_unchanged(spec: CorpusSpec) -> None:
    """Check, once a corpus has been read, that it is still what was asked for."""
    if spec.fingerprint not in ("", resolve(spec).fingerprint):
        raise BadRequest(f"Corpus {spec.name!r} changed meanwhile: ask again.")


@lru_cache(maxsize=32)
def _file_sha(path: str, _size: int, _time: int) -> str:
    """Check the beginning of a file and return its SHA-256; cached by path, size and mtime.

    It differs from the SHA-256 of the bytes for files that older versions read otherwise.
    """
    begun = b""
    if Path(path) not in BUNDLED.values():
        look_at(Path(path))
        begun = READING * (Path(path).suffix.lower() != ".npy")
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.sha256(begun)).hexdigest()


@dataclass(frozen=True, eq=False)
class Cut:
    """Windows of tokens, divided into groups.

    Attributes:
        tokens: token ids; window ``w`` belongs to group ``w % groups_of(windows)``. All groups have
            the same number of windows.
        dealt: what a group consists of (documents, a stretch of the text, or arbitrary windows).
        beginnings: of each group, the first :data:`BEGINNING` characters of its documents, in
            order; empty if it does not consist of documents.
    """

    tokens: Tokens
    dealt: Dealt
    beginnings: tuple[tuple[str, ...], ...] = ()


def token_windows(
    spec: CorpusSpec,
    tokenizer: Tokenizer | None,
    *,
    context: int,
    windows: int,
    start_token: bool,
    seed: int = 0,
    exactly: bool = False,
    cut: bool = False,
) -> Cut:
    """Cut a corpus into groups of windows of token ids, ``[windows, context]``.

    There are ten groups with the same number of windows, so 64 requested windows give 60, and 23
    give 20. If fewer than ten windows are requested, each is a group. Window ``w`` belongs to group
    ``w % groups_of(windows)``. The windows are the first of those of any longer run.

    Each document goes to the group with the fewest tokens so far. The documents of a group are
    joined with a blank line in between and cut into consecutive windows. With ``start_token``, each
    window begins with the start token, and one that a document begins with is left out. A document
    gives :func:`largest_share` windows at most. If all documents together give too little, each
    adds as much again to its group, in further *laps* in the same order; a corpus of the hub, whose
    documents are not counted, has one lap. If the text ends early, every group is cut to the length
    of the shortest.

    A corpus with fewer documents than groups, or with too little text per group, is cut as one
    text. Each group is then a stretch of consecutive windows: of the first 500 windows of the text,
    or of as many as are requested, if more. So the windows are the first of a longer run only if
    that has 500 or fewer. Of a file of ready windows, the groups are stretches of the whole file. A
    single text (typed, or a named item) gives one window, which may be shorter than ``context``.

    With ``cut``, ready windows may be longer than ``context``; they are truncated.
    """
    if spec.name.endswith(".npy"):
        check_ready_windows(spec, context, cut)
        ready = np.load(find_file(spec.name), mmap_mode="r", allow_pickle=False)[:, :context]
        _check_enough(spec, len(ready), windows, context, exactly)
        return in_stretches(ready, in_equal_groups(windows))
    if tokenizer is None:
        raise BadRequest(NONE_THERE)
    prefix = [tokenizer.start_id()] if start_token else []
    body = context - len(prefix)
    single = spec.name == TYPED or spec.item is not None
    requested = 1 if single else windows
    wanted = in_equal_groups(requested)
    once = tokenizer.without_start if start_token else str

    def read() -> Iterator[str]:
        return map(once, documents(spec, seed))

    texts, number = counted_documents(spec, seed)
    rows: list[list[int]] = []
    beginnings: tuple[tuple[str, ...], ...] = ()
    if not single and (number is None or number >= GROUPS):
        again = () if number is None else iter(read, None)
        per_group = -(-wanted // GROUPS)
        rows, beginnings = _deal(
            chain([map(once, texts)], again), tokenizer, body, per_group, largest_share(number)
        )
    one = not rows
    if one:
        most = 1 if single else max(requested, DEFAULT_TEXTS)
        rows = [*islice(_chunks(read(), tokenizer, body, keep_short=single), most)]
    _check_enough(spec, len(rows), requested, context, exactly)
    if spec.whole and single:
        runs = (run for text in read() for run in tokenizer.encode_in_runs(text))
        length = len(prefix) + sum(map(len, runs))
        if length > context:
            added = " with the start token" if prefix else ""
            raise BadRequest(
                f"The text has {counted(length, 'token')}{added}, the context holds {context}: "
                f"shorten it by about {counted(length - context, 'token')}, or choose a longer "
                "context if the model reads one."
            )
    tokens = np.array([prefix + row for row in rows], dtype=np.int64)
    if one:
        return in_stretches(tokens, wanted)
    return Cut(tokens[:wanted], "documents", beginnings[: groups_of(wanted)])


def in_stretches(rows: Integer[np.ndarray, "text pos"], windows: int | None = None) -> Cut:
    """Reorder consecutive windows so that each group is a stretch; keep the first ``windows``."""
    equal = in_equal_groups(len(rows))
    order = np.arange(equal).reshape(groups_of(equal), -1).T.reshape(-1)
    return Cut(np.asarray(rows[order[:windows]], dtype=np.int64), "stretches")


def largest_share(documents: int | None) -> int:
    """Return the largest number of windows per document and lap, whatever the number of windows.

    It is 1.2 times the even share of a document in 500 windows, rounded up. It is larger if the
    group with the fewest documents needs more to reach 50 windows, and 1 if the number of documents
    is unknown.
    """
    if documents is None:
        return 1
    per_group = DEFAULT_TEXTS // GROUPS
    return max(-(-6 * DEFAULT_TEXTS // (5 * documents)), -(-per_group // (documents // GROUPS)))


def _deal(
    laps: Iterable[Iterator[str]], tokenizer: Tokenizer, size: int, per_group: int, share: int
) -> tuple[list[list[int]], tuple[tuple[str, ...], ...]]:
    """Return rows of tokens, groups interleaved; ``per_group`` each, or fewer if the text ends.

    Beside them stand the beginnings of each group's documents. Every lap reads the documents again:
    to keep them all begun would take much memory.
    """
    held: list[list[int]] = [[] for _ in range(GROUPS)]
    read: list[list[tuple[int, str]]] = [[] for _ in range(GROUPS)]
    begun: dict[int, tuple[list[int], str]] = {}
    for lap, texts in enumerate(laps):
        first = lap * share * size
        for number, text in enumerate(texts):
            if not lap:
                to = min(range(GROUPS), key=lambda at: len(held[at]))
                between = "\n\n" if len(held[to]) % size else ""
                begun[number] = held[to], between
                read[to].append((len(held[to]) + len(between), text[:BEGINNING]))
            if number in begun and len(begun[number][0]) < per_group * size:
                group, between = begun[number]
                until = min(len(group) + share * size, per_group * size)
                tokens = chain.from_iterable(tokenizer.encode_in_runs(between + text))
                group += islice(tokens, first, first + until - len(group))
                if len(group) < until:
                    del begun[number]
            if min(map(len, held)) == per_group * size:
                break
        begun = {j: place for j, place in begun.items() if len(place[0]) < per_group * size}
        if not begun:
            break
    end = min(map(len, held)) // size * size
    rows = [group[start : start + size] for start in range(0, end, size) for group in held]
    return rows, tuple(tuple(text for at, text in texts if at < end) for texts in read)


def _chunks(
    texts: Iterator[str], tokenizer: Tokenizer, size: int, keep_short: bool
) -> Iterator[list[int]]:
    pending: list[int] = []
    for text in texts:
        for run in tokenizer.encode_in_runs(("\n\n" if pending else "") + text):
            pending += run
            full = len(pending) // size
            for start in range(0, full * size, size):
                yield pending[start : start + size]
            pending = pending[full * size :]
    if keep_short and pending:
        yield pending


def check_ready_windows(spec: CorpusSpec, context: int, cut: bool = False) -> None:
    """Check that a file of ready windows fits the context, by its header; ignore other corpora."""
    if not spec.name.endswith(".npy"):
        return
    try:
        shape, kind = npy_shape(find_file(spec.name))
    except (ValueError, OSError, EOFError) as error:
        raise UnknownCorpus(f"{spec.name!r} is not a .npy file of numbers: {error}.") from error
    length = shape[1] if len(shape) == 2 and kind.kind in "iu" else 0
    if length < context or (length > context and not cut):
        raise UnknownCorpus(
            f"Expected integers of shape [windows, {context}] in {spec.name!r}, got "
            f"{kind} {list(shape)}: choose the file's T as context, or another file."
        )


def _check_enough(spec: CorpusSpec, got: int, requested: int, context: int, exactly: bool) -> None:
    if got == 0 or (exactly and got < in_equal_groups(requested)):
        advice = f"ask for {got} or fewer" if got else "give a longer text"
        raise TooLittleText(
            f"Corpus {spec.name!r} gives {counted(got, 'window')} of {counted(context, 'token')}, "
            f"{requested} were asked for: {advice}, a shorter context, or another corpus."
        )
