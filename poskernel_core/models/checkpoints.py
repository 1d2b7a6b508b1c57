"""Names of training checkpoints: which step each was saved at, and which of them are one run.

A run on this machine is a directory of model directories. Their steps are read from their names
(``step-100``, ``checkpoint-500``, ``global_step1000``), or from a ``schedule.json`` beside them::

    {"tokens_per_step": 2048, "checkpoints": {"step-0": 0, "step-64": 64}}
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.files import read_json

__all__ = ["Checkpoint", "checkpoint_named", "local_checkpoints", "one_run"]

SCHEDULE = "schedule.json"
STEP = re.compile(
    r"(?:^|[-_])(?:global_?)?(?:step|checkpoint|iter|ckpt)[-_]?([0-9]{1,12})(?![0-9])"
)
TOKENS = re.compile(r"tokens?[-_]?([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMBT])")
SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
STAGE = re.compile(r"stage([0-9])$")
LATEST = 10**12


@dataclass(frozen=True)
class Checkpoint:
    """One saved state of a model.

    Attributes:
        revision: the hub revision, or the directory, that holds it.
        step: updates of the weights before it.
        tokens: tokens read before it, or None where that is not known.
    """

    revision: str
    step: int
    tokens: int | None = None


def checkpoint_named(revision: str, tokens_per_step: int | None = None) -> Checkpoint | None:
    """Return the checkpoint that a revision is by its name; None where the name has no step.

    Tokens that the name states, which are rounded, are taken where those of a step are not known.
    """
    step = STEP.search(revision)
    if step is None:
        return None
    number, told = int(step[1]), TOKENS.search(revision)
    tokens = round(float(told[1]) * SCALES[told[2]]) if told else None
    return Checkpoint(revision, number, number * tokens_per_step if tokens_per_step else tokens)


def one_run(revisions: Iterable[str], tokens_per_step: int | None = None) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of one run among revisions, by step; the others are left out.

    Names that differ in what stands before the step are of different runs; the largest counts, or
    ``stage1``. A later stage belongs to it if its steps go on from there.
    """
    groups: dict[str, dict[int, Checkpoint]] = {}
    for revision in sorted(revisions, key=lambda name: (len(name), name)):
        found = checkpoint_named(revision, tokens_per_step)
        if found is not None:
            before = revision[: STEP.search(revision).start()]  # type: ignore[union-attr]
            groups.setdefault(before, {}).setdefault(found.step, found)
    if not groups:
        return ()
    first = max(groups, key=lambda name: (name == "stage1", len(groups[name])))
    run = dict(groups[first])
    for name in sorted(groups) if STAGE.search(first) else ():
        if name > first and STAGE.search(name) and min(groups[name]) > max(run):
            run |= groups[name]
    return tuple(run[step] for step in sorted(run))


def local_checkpoints(directory: Path) -> tuple[Checkpoint, ...]:
    """Return the checkpoints in a directory, by step; none where it is no run.

    Raises:
        UnsupportedModel: a schedule that cannot be read, or names what is not there.
    """
    if os.path.isfile(directory / SCHEDULE):  # False also where no path can be so long
        return _scheduled(directory)
    try:
        names = [each.name for each in directory.iterdir() if _is_model(each)]
    except OSError:
        return ()
    return one_run(names)


def _is_model(directory: Path) -> bool:
    return (directory / "config.json").is_file()


def _scheduled(directory: Path) -> tuple[Checkpoint, ...]:
    file = directory / SCHEDULE
    try:
        found = read_json(file)
        per_step, steps = _parts_of(found)
    except (OSError, ValueError) as error:
        raise UnsupportedModel(
            f"The {SCHEDULE} of {directory.name!r} is not of the form {{'tokens_per_step': 2048, "
            f"'checkpoints': {{'step-64': 64}}}} ({error}): check the file."
        ) from error
    missing = [name for name in steps if not _is_model(directory / name)]
    if missing:
        raise UnsupportedModel(
            f"The {SCHEDULE} of {directory.name!r} names {missing[0]!r}, and there is no model "
            "directory of that name beside it: fetch it, or take it off the schedule."
        )
    return tuple(
        Checkpoint(name, step, None if per_step is None else step * per_step)
        for name, step in sorted(steps.items(), key=lambda each: each[1])
    )


def _parts_of(found: Any) -> tuple[int | None, dict[str, int]]:
    """Return the tokens of a step and the steps of a schedule.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(found, dict) or not isinstance(found.get("checkpoints"), dict):
        raise ValueError("it has no 'checkpoints'")
    per_step, steps = found.get("tokens_per_step"), found["checkpoints"]
    if per_step is not None and (type(per_step) is not int or not 1 <= per_step <= LATEST):
        raise ValueError("'tokens_per_step' is no number above 0")
    for name, step in steps.items():
        if type(step) is not int or not 0 <= step <= LATEST:
            raise ValueError(f"the step of {name[:40]!r} is no whole number from 0 on")
        if not name or Path(name).name != name:
            raise ValueError(f"{name[:40]!r} is no name of a directory beside it")
    if len(set(steps.values())) < len(steps):
        raise ValueError("two checkpoints have the same step")
    return per_step, steps
