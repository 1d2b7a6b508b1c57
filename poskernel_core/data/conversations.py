"""Conversations: turns of the plays among the bundled texts, or files of messages."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.errors import BadRequest, UnknownCorpus
from poskernel_core.common.files import parse_json
from poskernel_core.common.groups import GROUPS, in_equal_groups
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, CorpusSpec
from poskernel_core.data.texts import bundled, encoding, find_file, reading
from poskernel_core.models.chat import Turn

ROLES = ("system", "user", "assistant")
PLAYS = "sample"
FILES = (".jsonl", ".json")
OTHERS = (".txt", ".parquet", ".npy")
MAX_PATH = 4096
EXAMPLE = '[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello!"}]'
TURNS = 8
"""Most turns of a conversation that is cut from a play."""
SPOKEN = re.compile(rf"^({'|'.join(ROLES)}):[ \t]*", re.IGNORECASE | re.MULTILINE)
"""How a turn begins that is typed."""
SPEAKER = re.compile(
    r"(?!ACT |SCENE )[A-Z][A-Z'. ]+[A-Z]|(?:First|Second|Third|Fourth|All|Both)(?: [A-Z][a-z]+)?"
)
"""The line before a turn of a play."""


def read_turns(given: Any) -> tuple[Turn, ...]:
    """Return the turns of one conversation: a list of messages, or an object that has one.

    Raises:
        ValueError: with a sentence, if it is something else.
    """
    turns = given.get("messages") if isinstance(given, dict) else given
    if not isinstance(turns, list | tuple) or not turns:
        raise ValueError(f"expected a list of turns such as {EXAMPLE}, got {str(given)[:60]!r}")
    conversation = []
    for number, turn in enumerate(turns, 1):
        role, content = (
            (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        )
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(
                f"expected turns with a 'role' ({', '.join(ROLES)}) and a text as 'content', got "
                f"{str(turn)[:60]!r} as turn {number}"
            )
        conversation.append((role, content))
    return tuple(conversation)


def as_text(given: Any) -> str:
    """Return messages, their JSON text, or paragraphs like ``user: ...`` as canonical JSON text.

    Raises:
        ValueError: as for :func:`read_turns`.
    """
    if isinstance(given, str) and (spoken := SPOKEN.split(given.strip()))[1:] and not spoken[0]:
        said = zip(spoken[1::2], spoken[2::2], strict=True)
        given = [{"role": role.lower(), "content": text.strip()} for role, text in said]
    elif isinstance(given, str):
        try:
            given = parse_json(given)
        except ValueError as error:
            raise ValueError(
                f"expected a list of turns such as {EXAMPLE}, got {given[:60]!r}"
            ) from error
    turns = [{"role": role, "content": content} for role, content in read_turns(given)]
    return json.dumps(turns, ensure_ascii=False)


def turns_in_file(path: Path) -> tuple[Turn, ...]:
    """Return the one conversation in a file of messages.

    Raises:
        BadRequest: the file holds another number of them, or something else.
    """
    entries = [*_in_file(path)]
    if len(entries) != 1:
        raise BadRequest(
            f"Expected one conversation in {path.name!r}, got {len(entries)}: give the file as "
            "the corpus to read them all."
        )
    return entries[0]


def text_or_file(text: str) -> Any:
    """Return a typed text; of one that is the path of a file: its text, or its conversation.

    Raises:
        BadRequest: there is no such file, or it holds something else.
    """
    if not text or len(text) > MAX_PATH or "\n" in text or "\0" in text:
        return text
    path = Path(os.path.expanduser(text))
    suffix, there = path.suffix.lower(), os.path.exists(path)
    if not there and suffix not in (*FILES, *OTHERS):
        return text
    if not path.is_file() or suffix in OTHERS[1:]:
        got = "which is something else" if there else "and there is no such file"
        raise BadRequest(
            "Expected a text, the path of a .txt file, or that of one conversation as .json or "
            f".jsonl, got {text[:200]!r}, {got}: check the path; words to be measured must not end "
            "like one."
        )
    if suffix in FILES:
        return [{"role": role, "content": content} for role, content in turns_in_file(path)]
    with reading(path), path.open(encoding=encoding(path)) as stream:
        return stream.read(MAX_TEXT_CHARACTERS + 1)  # one more is refused


def check_corpus(name: str) -> None:
    """Check that a corpus has conversations, as far as its name tells."""
    if name != PLAYS and Path(name).suffix.lower() not in FILES:
        raise UnknownCorpus(
            f"The corpus {name!r} has no conversations: choose {PLAYS!r}, whose plays have turns, "
            "or a .jsonl or .json file of messages."
        )


def conversations(corpus: CorpusSpec, seed: int, most: int) -> list[tuple[Turn, ...]]:
    """Return up to ``most`` conversations in an order fixed by ``seed``.

    Conversation ``w`` belongs to group ``w % groups_of(n)`` of the ``n`` returned. All that are cut
    from one piece of a play are in one group.
    """
    check_corpus(corpus.name)
    own = corpus.name == PLAYS
    documents = (
        [*_plays()]
        if own
        else [[conversation] for conversation in _in_file(find_file(corpus.name))]
    )
    order = np.random.default_rng(seed).permutation(len(documents))
    groups: list[list[tuple[Turn, ...]]] = [[] for _ in range(min(GROUPS, len(documents)))]
    for place in order:
        min(groups, key=len).extend(documents[place])
    equal = min(map(len, groups), default=0) if len(groups) == GROUPS else None
    dealt = chain.from_iterable(zip_longest(*(group[:equal] for group in groups)))
    ordered = [conversation for conversation in dealt if conversation is not None]
    if not ordered:
        raise UnknownCorpus(f"There is no conversation in {corpus.name!r}: give one a line.")
    return ordered[: in_equal_groups(min(most, len(ordered)))]


def _plays() -> Iterator[list[tuple[Turn, ...]]]:
    """Yield the conversations of each piece of a play; the speakers take both roles in turn."""
    for record in bundled(PLAYS):
        if record.get("domain") != "shakespeare":
            continue
        spoken: list[list[str]] = []
        for line in record["text"].splitlines():
            if SPEAKER.fullmatch(line.strip()):
                spoken.append([])
            elif spoken:
                spoken[-1].append(line)
        said = [text for speech in spoken if (text := "\n".join(speech).strip())]
        yield [
            tuple(
                (ROLES[1 + place % 2], text)
                for place, text in enumerate(said[first : first + TURNS])
            )
            for first in range(0, len(said) - TURNS + 1, TURNS)
        ]


def _in_file(path: Path) -> Sequence[tuple[Turn, ...]]:
    """Return the conversations of a file: one a line, or one list of turns, or a list of them."""
    with reading(path):
        text = path.read_text(encoding=encoding(path))
        if path.suffix.lower() == ".jsonl":
            lines = ((number, line) for number, line in enumerate(text.split("\n"), 1))
            return [_in_line(number, line) for number, line in lines if line.strip()]
        document = parse_json(text)
        several = (
            isinstance(document, list)
            and document
            and not (isinstance(document[0], dict) and "role" in document[0])
        )
        return [read_turns(entry) for entry in (document if several else [document])]


def _in_line(number: int, line: str) -> tuple[Turn, ...]:
    try:
        return read_turns(parse_json(line))
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
