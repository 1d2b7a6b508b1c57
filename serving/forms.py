"""The forms of an answer, by what a request accepts, and the cache of those that were made."""

import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock

from cachetools import LRUCache

from poskernel_core import __version__
from poskernel_core.analyses.views import figure_of
from poskernel_core.client import EXACT
from poskernel_core.common.result import NUMBERS, Result
from poskernel_core.engine.provenance import to_line
from poskernel_core.export.continuation import continuation
from poskernel_core.export.files import to_csv, to_html, to_json, to_npz
from poskernel_core.export.printing import find_browser, picture
from serving.problems import Problem

MAX_BYTES = 64 * 10**6
"""Most bytes of one answer, and of all that are kept."""

LETTERS = 20
"""Letters of a number in a text, about."""

RANGE = re.compile(r"\s*([\w*.+-]+/[\w*.+-]+)\s*(?:;.*?)??(?:;\s*q=([01](?:\.\d{0,3})?)\s*)?")


@dataclass(frozen=True)
class Form:
    """A form of answers: its name, its media type, and what makes it from key and result."""

    name: str
    media: str
    made: Callable[[str, Result], bytes]
    packs: bool = False
    draws: bool = False


def _page(_: str, result: Result) -> bytes:
    code = continuation(result)
    return to_html([figure_of(result)], result, result.analysis, code=code).encode()


def _picture(_: str, result: Result, kind: str) -> bytes:
    return picture(figure_of(result), result, kind)


FORMS = (
    Form("json", "application/json", lambda _, result: to_json(result).encode(), packs=True),
    Form("npz", "application/x-npz", lambda _, result: to_npz(result)),
    Form("csv", "text/csv", lambda _, result: to_csv(result).encode(), packs=True),
    Form("html", "text/html", _page, packs=True),
    Form("svg", "image/svg+xml", partial(_picture, kind="svg"), packs=True, draws=True),
    Form("png", "image/png", partial(_picture, kind="png"), draws=True),
    Form("exact", EXACT, to_line),
)
"""All forms; the first one if a request names none, or accepts any."""


def accepted(accept: str) -> Form:
    """Return the form that an ``Accept`` header likes best.

    Raises:
        Problem: there is none, or no browser here draws it.
    """
    ranges = [match for part in accept.split(",") if (match := RANGE.fullmatch(part))]

    def liked(form: Form) -> float:
        kind = form.media.partition("/")[0]
        for name in (form.media, f"{kind}/*", "*/*"):
            for media_range in ranges:
                if media_range[1].lower() == name:
                    return float(media_range[2] or 1)
        return 0.0

    best = max(FORMS, key=liked) if accept.strip() else FORMS[0]
    if accept.strip() and not liked(best):
        every = ", ".join(form.media for form in FORMS)
        raise Problem(406, f"Expected one of {every} to be accepted, got {accept[:80]!r}.")
    if best.draws:
        try:
            find_browser()
        except Exception as error:
            raise Problem(
                406, "Pictures are drawn by a browser, and this server has none: ask for text/html."
            ) from error
    return best


class Encoded:
    """Answers as bytes, by key, part and form; the least recently used ones are dropped."""

    def __init__(self) -> None:
        self._made: LRUCache[tuple[str, bool], bytes] = LRUCache(MAX_BYTES, len)
        self._lock = Lock()

    def get(self, tag: str, *, packed: bool) -> bytes | None:
        """Return the bytes of an answer if they are kept; ``packed`` ones are compressed."""
        with self._lock:
            data: bytes | None = self._made.get((tag, packed))
            return data

    def make(self, tag: str, form: Form, key: str, result: Result, *, packed: bool) -> bytes:
        """Return an answer as bytes, and keep them.

        Raises:
            Problem: it is too large.
        """
        count = sum(array.size for part in NUMBERS for array in getattr(result, part).values())
        size = count * LETTERS if form.packs and not form.draws else result.nbytes
        made = b"" if size > MAX_BYTES else form.made(key, result)
        if max(size, len(made)) > MAX_BYTES:
            axes = {axis for names in result.axes.values() for axis in names}
            ways = ["one 'head'"] * ("head" in axes) + ["one 'query'"] * ("query" in axes)
            raise Problem(
                413,
                f"This answer takes {max(size, len(made)) / 1e6:,.0f} MB in this form, and "
                f"{MAX_BYTES / 1e6:.0f} MB are sent at most: ask for "
                f"{' and '.join(ways) or 'fewer windows, or a shorter context'}"
                + (", or for npz." if form.packs else "."),
                error="TooLarge",
            )
        kept = gzip.compress(made, 6) if packed else made
        with self._lock:
            if len(kept) <= MAX_BYTES:
                self._made[tag, packed] = kept
        return kept


def tag_of(key: str, form: Form, head: str, query: str) -> str:
    """Return the entity tag of a part of an answer in a form."""
    return f'"{key}-{head}-{query}-{form.name}-{__version__}"'
