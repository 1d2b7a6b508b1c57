"""What is told of choices that are not shown as asked."""

from typing import Any

from pages.shared.cards.plain import plain
from pages.shared.choices.choices import Told

MAX_NAMED = 8
MAX_LETTERS = 60


def sentence(told: Told) -> str:
    """Return what is told as a sentence."""
    if not told.used:
        return f"The link gives {told.key} {_brief(told.asked)}, which this page does not use."
    if told.model:
        return f"{told.model} has no {told.key} {told.asked}; shown is {told.shown} instead."
    why = f": {told.offered}" if told.offered else ""
    return (
        f"The link asks for {told.key} {_brief(told.asked)}; shown is {_brief(told.shown)} "
        f"instead{why}."
    )


def tell(told: list[Told], place: Any) -> None:
    """Write one notice into ``place``."""
    if told:
        sentences = [plain(sentence(each)) for each in told]
        text = sentences[0] if len(sentences) == 1 else "\n".join(f"- {each}" for each in sentences)
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
