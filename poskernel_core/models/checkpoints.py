"""Read training steps from checkpoint names, and group the checkpoints of one run.

A local run is a directory of model directories. The steps are read from the directory names
(``step-100``, ``checkpoint-500``, ``global_step1000``), or from a ``schedule.json`` beside them::

    {"tokens_per_step": 2048, "checkpoints": {"step-0": 0, "step-64": 64}}
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.files import read_json

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
    """A saved state of a model: hub revision or directory, weight updates and tokens so far."""

    revision: str
    step: int
    tokens: int | None = None


def checkpoint_named(revision: str, tokens_per_step: int | None = None) -> Checkpoint | None:
    """Parse a revision's name as a checkpoint; return None if the name has no step.

    The token count in the name is rounded, so it is used only without ``tokens_per_step``.
    """
    step = STEP.search(revision)
    if step is None:
        return None
    number, match = int(step[1]), TOKENS.search(revision)
    tokens = round(float(match[1]) * SCALES[match[2]]) if match else None
    return Checkpoint(revision, number, number * tokens_per_step if tokens_per_step else tokens)


def one_run(revisions: Iterable[str], tokens_per_step: int | None = None) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of one run among revisions, sorted by step; drop the others.

    A run is a group of names with the same text before the step. ``stage1`` is chosen if it exists,
    else the largest group. A later stage is appended if its steps start after the run's last step.
    """
    groups: dict[str, dict[int, Checkpoint]] = {}
    for revision in sorted(revisions, key=lambda name: (len(name), name)):
        checkpoint = checkpoint_named(revision, tokens_per_step)
        if checkpoint is not None:
            before = revision[: STEP.search(revision).start()]  # type: ignore[union-attr]
            groups.setdefault(before, {}).setdefault(checkpoint.step, checkpoint)
    if not groups:
        return ()
    first = max(groups, key=lambda name: (name == "stage1", len(groups[name])))
    run = dict(groups[first])
    for name in sorted(groups) if STAGE.search(first) else ():
        if name > first and STAGE.search(name) and min(groups[name]) > max(run):
            run |= groups[name]
    return tuple(run[step] for step in sorted(run))


def local_checkpoints(directory: Path) -> tuple[Checkpoint, ...]:
    """Return the checkpoints in a directory, sorted by step; empty if it is not a run."""
    if os.path.isfile(directory / SCHEDULE):  # also False if the path is too long
        return _scheduled(directory)
    try:
        names = [folder.name for folder in directory.iterdir() if _is_model(folder)]
    except OSError:
        return ()
    return one_run(names)


def _is_model(directory: Path) -> bool:
    return (directory / "config.json").is_file()


def _scheduled(directory: Path) -> tuple[Checkpoint, ...]:
    file = directory / SCHEDULE
    try:
        schedule = read_json(file)
        per_step, steps = _parts_of(schedule)
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
        for name, step in sorted(steps.items(), key=lambda item: item[1])
    )


def _parts_of(schedule: Any) -> tuple[int | None, dict[str, int]]:
    if not isinstance(schedule, dict) or not isinstance(schedule.get("checkpoints"), dict):
        raise ValueError("it has no 'checkpoints'")
    per_step, steps = schedule.get("tokens_per_step"), schedule["checkpoints"]
    if per_step is not None and (type(per_step) is not int or not 1 <= per_step <= LATEST):
        raise ValueError("'tokens_per_step' is not a number above 0")
    for name, step in steps.items():
        if type(step) is not int or not 0 <= step <= LATEST:
            raise ValueError(f"the step of {name[:40]!r} is not a whole number, 0 or more")
        if not name or Path(name).name != name:
            raise ValueError(f"{name[:40]!r} is not the name of a directory beside it")
    if len(set(steps.values())) < len(steps):
        raise ValueError("two checkpoints have the same step")
    return per_step, steps
