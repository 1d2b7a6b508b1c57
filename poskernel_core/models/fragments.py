"""Partial models: what is missing, as ``config.json`` says, and what then cannot run.

A directory that holds some of a model's weights says so in its configuration, under ``poskernel``:
``part_of`` names the whole model, ``lacks`` what is missing or not that model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

from poskernel_core.common.errors import NotInModel

__all__ = ["Part", "lacks", "part_of", "refuse", "why_not"]

Part = Literal["later layers", "token embeddings", "neurons", "predictions"]


def part_of(config: dict[str, Any]) -> str | None:
    """Return the name of the model that this one is a part of, or None for a whole model."""
    name = _declared(config).get("part_of")
    return name if isinstance(name, str) else None


def lacks(config: dict[str, Any]) -> tuple[Part, ...]:
    """Return what a model lacks of the one that it is a part of."""
    named = _declared(config).get("lacks")
    return tuple(part for part in get_args(Part) if isinstance(named, list) and part in named)


def why_not(name: str, config: dict[str, Any], uses: Iterable[Part]) -> str | None:
    """Return why a model cannot answer what uses these parts, in one sentence; None if it can."""
    missing = [part for part in lacks(config) if part in set(uses)]
    whole = part_of(config)
    if not missing or whole is None:
        return None
    return (
        f"{name!r} is a part of {whole!r}, without its {' and '.join(missing)}, and this needs "
        "them: choose a whole model, such as 'demo-gpt2'."
    )


def refuse(name: str, config: dict[str, Any], uses: Iterable[Part]) -> None:
    """Refuse what a model cannot answer.

    Raises:
        NotInModel: the model lacks what is used.
    """
    sentence = why_not(name, config, uses)
    if sentence is not None:
        raise NotInModel(sentence)


def _declared(config: dict[str, Any]) -> dict[str, Any]:
    found = config.get("poskernel")
    return found if isinstance(found, dict) else {}
