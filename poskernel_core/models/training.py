"""Training runs: the checkpoints of a model, wherever they are, and which of them are alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from poskernel_core.common.errors import BadRequest, NoNetwork, UnknownModel
from poskernel_core.common.specs import ModelSpec
from poskernel_core.models import catalog, hub
from poskernel_core.models.aliases import official_name
from poskernel_core.models.checkpoints import (
    Checkpoint,
    checkpoint_named,
    local_checkpoints,
    one_run,
)
from poskernel_core.models.schedules import SCHEDULES, schedule_for, tokens_per_step
from poskernel_core.models.weights import weights_digest

__all__ = ["TrainingRun", "first_of_equals", "required_run", "spec_of", "training_run"]

ASK_AGAIN = 600.0
"""Seconds after which the hub is asked again which revisions there are."""

ALL, LOG = "all", "log"
"""Words for every checkpoint of a run, and for those nearest to the powers of two."""


@dataclass(frozen=True)
class TrainingRun:
    """A model and the checkpoints of its training, by step.

    Attributes:
        model: its name: bundled, a directory, or the hub's.
        checkpoints: at least one.
    """

    model: str
    checkpoints: tuple[Checkpoint, ...]

    @property
    def local(self) -> bool:
        """Tell whether the checkpoints lie in a directory on this machine."""
        return catalog.local_directory(self.model) is not None

    def log_spaced(self) -> TrainingRun:
        """Return the first and the last checkpoint, and those nearest to powers of two."""
        steps = [each.step for each in self.checkpoints]
        wanted = [2**power for power in range(max(steps[-1], 1).bit_length())]
        near = {min(steps, key=lambda step: _apart(step, goal)) for goal in wanted}
        chosen = near | {steps[0], steps[-1]}
        return replace(self, checkpoints=tuple(e for e in self.checkpoints if e.step in chosen))

    def chosen(self, text: str) -> TrainingRun:
        """Return the checkpoints that a text names.

        It is ``all``, ``log``, the name of a known schedule, or revisions between commas; nothing
        is all of them.

        Raises:
            BadRequest: a revision that is none of the run, or commas alone.
        """
        word = text.strip()
        if word in ("", ALL):
            return self
        if word == LOG:
            return self.log_spaced()
        if word in SCHEDULES:
            return replace(self, checkpoints=SCHEDULES[word].checkpoints())
        known = {each.revision: each for each in self.checkpoints}
        found = [known.get(name) or self._unlisted(name) for name in _names(word)]
        if not found:
            raise BadRequest(f"Expected {self._listed()}, got {word[:80]!r}: name one or more.")
        steps = [each.step for each in found]
        if len(set(steps)) < len(steps):
            raise BadRequest(f"Expected every step once, got {word[:80]!r}.")
        return replace(self, checkpoints=tuple(sorted(found, key=lambda each: each.step)))

    def _unlisted(self, name: str) -> Checkpoint:
        """Return a hub revision that no schedule lists, if its name tells the step."""
        found = None if self.local else checkpoint_named(name, tokens_per_step(self.model))
        if found is None:
            raise BadRequest(
                f"{self.model!r} has no checkpoint {name[:64]!r}: expected {self._listed()}."
            )
        return found

    def _listed(self) -> str:
        """Return in words what may be chosen."""
        names = [each.revision for each in self.checkpoints]
        return f"{ALL}, {LOG}, or some of {names[0]}, ..., {names[-1]} between commas"


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _apart(step: int, goal: int) -> float:
    """Return how far a step is from another, in powers of two; step 0 is far from all."""
    return abs(math.log2(step / goal)) if step else math.inf


def training_run(name: str) -> TrainingRun | None:
    """Return the training run of a model, or None where it comes without checkpoints.

    A hub model of no known schedule is one if its revisions name steps; the hub is asked for them.

    Raises:
        UnsupportedModel: a directory whose schedule cannot be read.
    """
    directory = catalog.local_directory(name.strip())
    if directory is not None or catalog.is_local(name.strip()):
        found = local_checkpoints(directory) if directory else ()
        return TrainingRun(name.strip(), found) if found else None
    official = official_name(name.strip())
    schedule = schedule_for(official)
    known = schedule.checkpoints() if schedule else ()
    known = known or _listed(official, int(time.monotonic() // ASK_AGAIN))
    return TrainingRun(official, known) if known else None


def required_run(name: str) -> TrainingRun:
    """Return the training run of a model.

    Raises:
        UnknownModel: it comes without checkpoints.
        NoNetwork: a hub model whose checkpoints only the hub can tell, and it cannot be reached.
        UnsupportedModel: as :func:`training_run`.
    """
    found = training_run(name)
    if found is not None:
        return found
    if catalog.local_directory(name.strip()) is None:
        hub.revisions(official_name(name.strip()))
        if hub.offline():
            raise NoNetwork(
                f"Which checkpoints {name!r} has only the hub can tell, and it cannot be reached: "
                "go online, or give a directory of checkpoints; 'demo-training' works offline."
            )
    raise UnknownModel(
        f"{name!r} comes without checkpoints of its training: expected a directory with a model "
        "directory for each (step-100, step-200, ...), or a hub model whose revisions name steps, "
        "such as 'EleutherAI/pythia-70m'; 'demo-training' is bundled."
    )


@lru_cache(maxsize=64)
def _listed(name: str, _since: int) -> tuple[Checkpoint, ...]:
    """Return the checkpoints among the hub's revisions of a model."""
    try:
        return one_run(hub.revisions(name), tokens_per_step(name))
    except (UnknownModel, NoNetwork):
        return ()


def spec_of(run: TrainingRun, checkpoint: Checkpoint) -> ModelSpec:
    """Return a checkpoint as a model, without asking the hub.

    The fingerprint is empty where the hub has not been asked for it yet on this machine.
    """
    if run.local:
        return catalog.locate(run.model, checkpoint.revision).spec
    commit = hub.commit_here(run.model, checkpoint.revision)
    return ModelSpec(name=run.model, revision=checkpoint.revision, fingerprint=commit or "")


def first_of_equals(
    run: TrainingRun, on_unknown: Callable[[Checkpoint], None] = lambda _: None
) -> Mapping[str, str]:
    """Return for each checkpoint with the weights of an earlier one that earlier one's revision.

    Local weights are compared tensor by tensor; the hub is asked for the hashes of its files, and
    nothing is downloaded. ``on_unknown`` is told of those whose hashes are not known: the hub does
    not tell them, or cannot be reached.

    Raises:
        UnknownModel, UnsupportedModel, NoNetwork: as :mod:`.catalog` and :mod:`.hub`.
    """
    prints = ((each, _print_of(run, each)) for each in run.checkpoints)
    return _equals(prints, on_unknown)


def _equals(
    prints: Iterable[tuple[Checkpoint, object]], on_unknown: Callable[[Checkpoint], None]
) -> dict[str, str]:
    first: dict[object, str] = {}
    equal: dict[str, str] = {}
    for checkpoint, print_ in prints:
        if not print_:
            on_unknown(checkpoint)
        elif print_ in first:
            equal[checkpoint.revision] = first[print_]
        else:
            first[print_] = checkpoint.revision
    return equal


def _print_of(run: TrainingRun, checkpoint: Checkpoint) -> object:
    """Return what is equal where weights are; nothing where it is not known."""
    if run.local:
        located = catalog.locate(run.model, checkpoint.revision)
        return weights_digest(catalog.weight_files(run.model, Path(str(located.directory))))
    return () if hub.offline() else hub.published(run.model, checkpoint.revision).weights
