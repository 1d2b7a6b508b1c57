"""Training runs: a model's checkpoints, local or on the hub, and which of them are equal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from poskernel_core.common.errors import BadRequest, NoNetwork, UnknownModel
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import ModelSpec
from poskernel_core.models import catalog, hub
from poskernel_core.models.attached import attached, steps_of
from poskernel_core.models.catalog import official_name
from poskernel_core.models.checkpoints import (
    Checkpoint,
    checkpoint_named,
    local_checkpoints,
    one_run,
)
from poskernel_core.models.tokenizer_files import reading
from poskernel_core.models.weights import weights_digest

ASK_AGAIN = 600.0
"""Seconds for which the hub's list of revisions is cached."""

ALL, LOG = "all", "log"
"""Keywords for all checkpoints of a run, and for those nearest to the powers of two."""


def _schedule(revision: str, tokens_per_step: int, *steps: int) -> tuple[Checkpoint, ...]:
    return tuple(Checkpoint(f"{revision}{n}", n, n * tokens_per_step) for n in steps)


_THOUSANDS = range(1000, 143_001, 1000)
SCHEDULES = {
    "pythia": _schedule("step", 2_097_152, 0, *(2**power for power in range(10)), *_THOUSANDS),
    "pythia-v0": _schedule("step", 2_097_152, *_THOUSANDS),
    "stanford-crfm": _schedule(
        "checkpoint-", 524_288, *range(0, 100, 10), *range(100, 2000, 50),
        *range(2000, 20_000, 100), *range(20_000, 400_001, 1000),
    ),
}  # fmt: skip
"""Checkpoints of public runs, by their names in ``precompute --revisions``. Other runs, such as
OLMo and SmolLM3, have the step in the name of each revision, and the hub lists the revisions."""

TOKENS_PER_STEP = {"HuggingFaceTB/SmolLM3": 2_359_296}
"""Tokens per step of runs whose revisions the hub lists, by prefix of the hub name."""


def schedule_for(name: str) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a hub model of a known family; empty for others."""
    if name.startswith("EleutherAI/pythia"):
        return SCHEDULES["pythia-v0" if "v0" in name else "pythia"]
    return SCHEDULES["stanford-crfm"] if name.startswith("stanford-crfm/") else ()


def _tokens_per_step(name: str) -> int | None:
    return next((n for start, n in TOKENS_PER_STEP.items() if name.startswith(start)), None)


@dataclass(frozen=True)
class TrainingRun:
    """A model (bundled, a directory, or on the hub) and its checkpoints, sorted by step."""

    model: str
    checkpoints: tuple[Checkpoint, ...]

    @property
    def local(self) -> bool:
        """Tell whether the checkpoints are in a directory on this machine."""
        return catalog.is_local(self.model)

    def log_spaced(self) -> TrainingRun:
        """Keep the first and the last checkpoint, and those nearest to powers of two."""
        steps = [checkpoint.step for checkpoint in self.checkpoints]
        wanted = [2**power for power in range(max(steps[-1], 1).bit_length())]
        near = {min(steps, key=lambda step: _apart(step, goal)) for goal in wanted}
        chosen = near | {steps[0], steps[-1]}
        return replace(self, checkpoints=tuple(e for e in self.checkpoints if e.step in chosen))

    def chosen(self, text: str) -> TrainingRun:
        """Select checkpoints by a text.

        The text is ``all``, ``log``, the name of a known schedule, or a comma-separated list of
        revisions. An empty text selects all.
        """
        word = text.strip()
        if word in ("", ALL):
            return self
        if word == LOG:
            return self.log_spaced()
        if word in SCHEDULES:
            return replace(self, checkpoints=SCHEDULES[word])
        known = {checkpoint.revision: checkpoint for checkpoint in self.checkpoints}
        names = dict.fromkeys(filter(None, map(str.strip, word.split(","))))
        checkpoints = [known.get(name) or self._unlisted(name) for name in names]
        if not checkpoints:
            raise BadRequest(f"Expected {self._listed()}, got {word[:80]!r}: name one or more.")
        steps = [checkpoint.step for checkpoint in checkpoints]
        if len(set(steps)) < len(steps):
            raise BadRequest(f"Expected every step once, got {word[:80]!r}.")
        return replace(self, checkpoints=tuple(sorted(checkpoints, key=lambda item: item.step)))

    def _unlisted(self, name: str) -> Checkpoint:
        checkpoint = None if self.local else checkpoint_named(name, _tokens_per_step(self.model))
        if checkpoint is None:
            raise BadRequest(
                f"{self.model!r} has no checkpoint {name[:64]!r}: expected {self._listed()}."
            )
        return checkpoint

    def _listed(self) -> str:
        names = [checkpoint.revision for checkpoint in self.checkpoints]
        return f"{ALL}, {LOG}, or some of {names[0]}, ..., {names[-1]} between commas"


def _apart(step: int, goal: int) -> float:
    """Return the distance of a step from a goal, in powers of two; infinite for step 0."""
    return abs(math.log2(step / goal)) if step else math.inf


def training_run(name: str) -> TrainingRun | None:
    """Return the training run of a model, or None if it has no checkpoints.

    For a hub model without a known schedule, the hub is asked for revisions with steps in their
    names.
    """
    if logged := steps_of(name.strip()):
        return TrainingRun(name.strip(), tuple(Checkpoint(r, s, None) for r, s in logged.items()))
    directory = catalog.local_directory(name.strip())
    if directory is not None or catalog.is_local(name.strip()):
        checkpoints = local_checkpoints(directory) if directory else ()
        return TrainingRun(name.strip(), checkpoints) if checkpoints else None
    official = official_name(name.strip())
    known = schedule_for(official) or _listed(official, int(time.monotonic() // ASK_AGAIN))
    return TrainingRun(official, known) if known else None


def check_revision(
    name: str, revision: str | None, run_of: Callable[[str], TrainingRun | None] = training_run
) -> None:
    """Check that clients of a server may name a revision: the current one, or a checkpoint.

    Raises:
        BadRequest: another one, and the host does not allow clients to name what is downloaded.
    """
    if revision in (None, "main") or settings().allow_any_model or catalog.is_local(name):
        return
    run = run_of(name)
    if run is None or revision not in [checkpoint.revision for checkpoint in run.checkpoints]:
        of = "a checkpoint of its training, or none" if run else "none"
        raise BadRequest(
            f"Revision {str(revision)[:64]!r} of {name!r} is not offered here: choose {of}."
        )


def required_run(name: str) -> TrainingRun:
    """Return the training run of a model."""
    run = training_run(name)
    if run is not None:
        return run
    if catalog.local_directory(name.strip()) is None:
        hub.revisions(official_name(name.strip()))
        if hub.offline():
            raise NoNetwork(
                f"Only the hub can tell which checkpoints {name!r} has, and it cannot be reached: "
                "go online, or give a directory of checkpoints; 'demo-training' works offline."
            )
    raise UnknownModel(
        f"{name!r} comes without checkpoints of its training: expected a directory with a model "
        "directory for each (step-100, step-200, ...), or a hub model whose revisions name steps, "
        "such as 'EleutherAI/pythia-70m'; 'demo-training' is bundled."
    )


@lru_cache(maxsize=64)
def _listed(name: str, _since: int) -> tuple[Checkpoint, ...]:
    try:
        return one_run(hub.revisions(name), _tokens_per_step(name))
    except (UnknownModel, NoNetwork):
        return ()


def spec_of(run: TrainingRun, checkpoint: Checkpoint) -> ModelSpec:
    """Return a checkpoint's model specification, without asking the hub.

    The fingerprint is empty if the checkpoint's commit is not in the local cache.
    """
    if run.local:
        return catalog.locate(run.model, checkpoint.revision).spec
    file = hub.file_here(run.model, "config.json", checkpoint.revision)
    return ModelSpec(
        name=run.model,
        revision=checkpoint.revision,
        fingerprint=file.parent.name if file else "",
        tokenizer=reading(file.parent) if file else None,
    )


def first_of_equals(
    run: TrainingRun, on_unknown: Callable[[Checkpoint], None] = lambda _: None
) -> Mapping[str, str]:
    """Find checkpoints with the same weights as an earlier one; map each to the earlier revision.

    Local weights are compared tensor by tensor. For hub models, the hub's file hashes are compared
    and nothing is downloaded. ``on_unknown`` is called for each checkpoint whose hashes are
    unknown, because the hub lacks them or cannot be reached.
    """
    first: dict[object, str] = {}
    equal: dict[str, str] = {}
    for checkpoint in run.checkpoints:
        print_: object = ()  # equal for equal weights; empty if unknown
        if run.local:
            located = catalog.locate(run.model, checkpoint.revision)
            print_ = located.spec.fingerprint
            if attached(run.model) is None:
                files = catalog.weight_files(run.model, Path(str(located.directory)))
                print_ = weights_digest(files)
        elif not hub.offline():
            print_ = hub.published(run.model, checkpoint.revision)
        if not print_:
            on_unknown(checkpoint)
        elif print_ in first:
            equal[checkpoint.revision] = first[print_]
        else:
            first[print_] = checkpoint.revision
    return equal
