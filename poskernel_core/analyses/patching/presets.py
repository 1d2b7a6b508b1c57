"""Pairs of prompts that are ready to run."""

from poskernel_core.analyses.interventions.presets import Preset

_OBJECT = "Only the name that acts differs. A model that finds who is left names the other one."
_LAST = "Only the name that acts differs. A small model names who was said last."
_LIST = "A word changes in a list that repeats: an induction head finds what followed last time."
_BACK = "Both prompts end with the same token; what follows depends on the one before it."


def _pair(
    name: str, about: str, begin: str, ends: tuple[str, str], answers: tuple[str, str]
) -> Preset:
    params = {"changed": begin + ends[1], "answer": answers[0], "other_answer": answers[1]}
    return Preset(name, about, begin + ends[0], "", params)


_SMALL = (
    _pair(
        "Induction: a list", _LIST, "data line table ",
        ("name man code; data line table", "code man name; data line table"), (" name", " code"),
    ),
    _pair(
        "Look-back: the class", _BACK, "the data class name of the table class code; the ",
        ("data class", "table class"), (" name", " code"),
    ),
    _pair(
        "Indirect object: man and user", _LAST, "The man and the user came, and the ",
        ("user gave it to the", "man gave it to the"), (" user", " man"),
    ),
    _pair(
        "Indirect object: table and file", _LAST, "When the table and the file came, the ",
        ("file gave the name to the", "table gave the name to the"), (" file", " table"),
    ),
)  # fmt: skip
_USUAL = (
    _pair(
        "Indirect object: Mary and John", _OBJECT, "When Mary and John went to the store, ",
        ("John gave a drink to", "Mary gave a drink to"), (" Mary", " John"),
    ),
    _pair(
        "Indirect object: Alice and Tom", _OBJECT, "Then Alice and Tom had lunch at the cafe. ",
        ("Tom handed the bill to", "Alice handed the bill to"), (" Alice", " Tom"),
    ),
    _pair(
        "Induction: a code", _LIST, "The code is red seven green ",
        (
            "four. I repeat: the code is red seven green",
            "nine. I repeat: the code is red seven green",
        ),
        (" four", " nine"),
    ),
    _pair(
        "Look-back: Mr. and Ms.", _BACK, "I met Mr. Smith and Ms. Jones. Thank you, ",
        ("Mr.", "Ms."), (" Smith", " Jones"),
    ),
)  # fmt: skip


def pairs_for(model: str) -> tuple[Preset, ...]:
    """Return the pairs of prompts of a model; demo models get words that are one token there."""
    return _SMALL if model.startswith("demo-") else _USUAL
