"""Entries that were written before results had a place for texts: these lay in the provenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from poskernel_core.analyses import find
from poskernel_core.common.result import TOKENS
from poskernel_core.storage.encoding import Entry

__all__ = ["with_texts"]

ENDS = {"up": "top", "down": "bottom"}
"""What both ends of a list of tokens were called, and what they are called."""


def with_texts(entry: Entry) -> Entry:
    """Return an entry with its texts in their place, whenever it was written.

    Raises:
        KeyError: an entry of another layout.
        UnknownAnalysis: an earlier entry of no analysis of ours.
    """
    header, arrays = entry
    if "texts" in header:
        return entry

    question, provenance = find(header["analysis"]), dict(header["provenance"])
    values: dict[str, np.ndarray] = {}
    texts = {
        text.name: provenance.pop(text.name)
        for text in (TOKENS, *question.texts)
        if text.name in provenance
    }
    words = provenance.pop("token_words", {})
    for name in ("top", "bottom") if words else ():
        texts[f"{name}_words"] = _worded(arrays[f"values/{name}"].tolist(), words)
    listed = provenance.pop("listed", {})
    if listed.keys() == ENDS.keys():
        for old, new in ENDS.items():
            texts[f"{new}_words"] = [word for word, _ in listed[old]]
            values[f"{new}_value"] = np.array([value for _, value in listed[old]])
    elif listed:
        texts["strongest"] = list(_lines(listed))
    if "bias" in provenance:
        values["bias"] = np.array(provenance.pop("bias"))
    declared = {value.name: value for value in (TOKENS, *question.texts, *question.values)}
    moved = {name: declared[name] for name in (*texts, *values)}
    return (
        header
        | {"texts": texts, "provenance": provenance}
        | {"axes": header["axes"] | {name: value.axes for name, value in moved.items()}}
        | {"units": header["units"] | {name: value.unit for name, value in moved.items()}},
        arrays | {f"values/{name}": array for name, array in values.items()},
    )


def _worded(tokens: Any, words: dict[str, str]) -> Any:
    """Return nested lists of token ids as their texts."""
    if isinstance(tokens, list):
        return [_worded(each, words) for each in tokens]
    return words[str(tokens)]


def _lines(listed: dict[str, list[Any]]) -> Iterator[str]:
    for name, pairs in listed.items():
        yield f"{name}: {', '.join(f'{word!r} {value:.3g}' for word, value in pairs)}"
