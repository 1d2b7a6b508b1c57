"""Partial models: what their ``config.json`` declares missing, and what they cannot compute.

A partial model says so in its configuration, under ``poskernel``: ``part_of`` names the whole
model; ``lacks`` lists the parts that are missing or are not the whole model's own.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

from poskernel_core.common.errors import NotInModel

Part = Literal["later layers", "token embeddings", "neurons", "predictions"]


def part_of(config: dict[str, Any]) -> str | None:
    """Return the name of the whole model of a partial model, or None for a whole model."""
    name = _declared(config).get("part_of")
    return name if isinstance(name, str) else None


def lacks(config: dict[str, Any]) -> tuple[Part, ...]:
    """Return the parts of the whole model that a partial model lacks."""
    named = _declared(config).get("lacks")
    return tuple(part for part in get_args(Part) if isinstance(named, list) and part in named)


def why_not(name: str, config: dict[str, Any], uses: Iterable[Part]) -> str | None:
    """Return one sentence that says why a model cannot compute with these parts; None if it can."""
    missing = [part for part in lacks(config) if part in set(uses)]
    full_name = part_of(config)
    if not missing or full_name is None:
        return None
    return (
        f"{name!r} is a part of {full_name!r}, without its {' and '.join(missing)}, and this needs "
        f"them: choose a whole model, such as {full_name!r} or 'demo-gpt2'."
    )


def refuse(name: str, config: dict[str, Any], uses: Iterable[Part]) -> None:
    """Refuse a computation that uses parts which a partial model lacks."""
    sentence = why_not(name, config, uses)
    if sentence is not None:
        raise NotInModel(sentence)


def _declared(config: dict[str, Any]) -> dict[str, Any]:
    declared = config.get("poskernel")
    return declared if isinstance(declared, dict) else {}
