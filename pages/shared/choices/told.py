"""What is told of choices that are not shown as asked."""

from typing import Any

from pages.shared.cards.plain import plain
from pages.shared.choices.choices import Told

MAX_NAMED = 8
MAX_LETTERS = 60


def sentence(notice: Told) -> str:
    """Return what is told as a sentence."""
    if not notice.used:
        return f"The link gives {notice.key} {_brief(notice.asked)}, which this page does not use."
    if notice.model:
        return (
            f"{notice.model} has no {notice.key} {notice.asked}; shown is {notice.shown} instead."
        )
    why = f": {notice.offered}" if notice.offered else ""
    return (
        f"The link asks for {notice.key} {_brief(notice.asked)}; shown is {_brief(notice.shown)} "
        f"instead{why}."
    )


def tell(notices: list[Told], place: Any) -> None:
    """Write one notice into ``place``."""
    if notices:
        sentences = [plain(sentence(notice)) for notice in notices]
        text = sentences[0] if len(sentences) == 1 else "\n".join(f"- {line}" for line in sentences)
        place.warning(text, icon=":material/link_off:")


def among(options: list[Any]) -> str:
    """Return options as a clause."""
    if not options:
        return ""
    if len(options) > MAX_NAMED:
        return f"offered are {len(options)} values from {options[0]} to {options[-1]}"
    return f"offered are {', '.join(map(str, options))}"


def between(low: float, high: float) -> str:
    """Return the ends of what is offered as a clause."""
    return f"offered are {low:g} to {high:g}"


def _brief(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not text or value is None:
        return "nothing"
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}…"
