"""Typed texts, stored under their hash so that links can refer to them briefly.

Their number and total size are limited (``POSKERNEL_MAX_TEXTS``, ``POSKERNEL_MAX_TEXTS_MB``), so
that they neither fill the disk nor evict results; the oldest texts are dropped first.
"""

import hashlib
import re

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS
from poskernel_core.storage.store import Store

PREFIX = "typed-"
DIGITS = 32


def name_of(text: str) -> str:
    """Return the name of a text: 32 digits of its SHA-256, equal for equal texts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def is_name(text: str) -> bool:
    """Return whether a string is a name from :func:`keep_text`, not a text that someone typed."""
    return re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", text) is not None


def keep_text(store: Store, text: str) -> str:
    """Store a text and return its name."""
    check_text(text)
    name = name_of(text)
    if kept_text(store, name) != text:
        store.put(PREFIX + name, {"text": text}, {})
        quotas, size = settings(), 0
        for number, (key, held) in enumerate(store.keys(PREFIX).items(), 1):
            size += held
            beyond = number > quotas.max_texts or size > quotas.max_texts_mb * 10**6
            if beyond and key != PREFIX + name:
                store.drop(key)
    return name


def kept_text(store: Store, name: str) -> str | None:
    """Return the text of a name; None if the store lacks it, or has a text of another name."""
    entry = store.get(PREFIX + name) if is_name(name) else None
    text = None if entry is None else entry[0].get("text")
    return text if isinstance(text, str) and name_of(text) == name else None


def check_text(text: str) -> None:
    """Check the length and encoding of a text."""
    most = min(settings().max_characters, MAX_TEXT_CHARACTERS)
    if len(text) > most:
        raise BadRequest(
            f"Expected a text of at most {most:,} characters, got {len(text):,}: shorten it."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"Expected text, got half a character at place {error.start}: remove it."
        ) from error
