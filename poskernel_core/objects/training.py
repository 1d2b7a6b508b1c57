"""``pk.TrainingLog``: measure a model of one's own while it is trained."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

from poskernel_core.analyses import find
from poskernel_core.analyses.base import Composition
from poskernel_core.analyses.measures import asked_with
from poskernel_core.common.atomic_write import write_file
from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.common.folders import default_directory
from poskernel_core.common.specs import DEFAULT_QUERY, DEFAULT_SKIP, Request, brief, whole
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import attached, catalog
from poskernel_core.objects.lab import Lab

KEPT = 40
"""Most steps of a run; those that are closest to their neighbours on a log scale are dropped."""

SHORT = {"induction": "induction-scores"}
CONTEXT, WINDOWS = 128, 10


class TrainingLog(TrainerCallback):
    """Measures a model at some steps of its training, for the page Over training.

    Call it with the model and the step after each step, ``log(model, step)``, in any loop, or give
    it to transformers' ``Trainer`` as a callback. A point is a pass over a few windows, on a twin
    of the model, which stays in training mode. The log spaces its points out, so that they take at
    most a share of the time; the first point, and the last (``finish``), are always taken.

    Args:
        run: the name of the run, as a model in the dashboard.
        every: fewest steps between two points.
        questions: analyses of all heads, by name.
        tokenizer: the model's tokenizer (default: as for :func:`lab.attach`, or the Trainer's);
            without one, windows are random tokens.
        share: most of the time that points may take, between 0 and 1.
        context: tokens of a window (default: 128, or the model's own if that is less).
        windows: windows of a point.

    Attributes:
        steps: the steps that were measured and kept.
        seconds: the time that points have taken.

    Raises:
        BadRequest: an unknown analysis, or a number out of range.
    """

    def __init__(
        self,
        run: str,
        every: int = 200,
        questions: Sequence[str] = ("etc", "induction", "previous-token"),
        *,
        tokenizer: Any = None,
        share: float = 0.02,
        context: int | None = None,
        windows: int = WINDOWS,
    ) -> None:
        names = [questions] if isinstance(questions, str) else [*questions]
        self._questions = [find(SHORT.get(short, short)) for short in names]
        several = (
            analysis.name for analysis in self._questions if isinstance(analysis, Composition)
        )
        if composed := next(several, None):
            raise BadRequest(f"{composed!r} is made of other answers: log those instead.")
        if not (isinstance(share, int | float) and 0 < share <= 1):
            raise BadRequest(f"Expected a share of the time from 0 to 1, got {brief(share)}.")
        for name, many in (("context", context), ("windows", windows)):
            if many is not None and whole(many, f"{name!r}") < 1:
                raise BadRequest(f"Expected {name!r} of at least 1, got {many}.")
        self.run, self._every, self._share = run, whole(every, "'every'"), share
        self._tokenizer, self._context, self._windows = tokenizer, context, windows
        self._lab: Lab | None = None
        self._model: Any = None
        self._began = self._cost = 0.0
        self.seconds, self.steps = 0.0, list[int]()

    def __call__(self, model: Any, step: int) -> None:
        """Measure the model if a point is due.

        Raises:
            PosKernelError: the first point cannot be taken; later failures are printed.
        """
        self._began = self._began or time.monotonic()
        elapsed = time.monotonic() - self._began
        due = not self.steps or step - self.steps[-1] >= self._every
        if due and (not self.steps or self.seconds + self._cost <= self._share * elapsed):
            self.finish(model, step)

    def finish(self, model: Any, step: int) -> None:
        """Measure the model now, as at the end of a training.

        Raises:
            PosKernelError: the first point cannot be taken; later failures are printed.
        """
        began, first = time.monotonic(), not self.steps
        self._began = self._began or began
        try:
            self._measure(model, whole(step, "step"))
        except PosKernelError as error:
            if first:
                raise
            print(f"TrainingLog: step {step} was not measured: {error}", file=sys.stderr)
        finally:
            self._cost = time.monotonic() - began
            self.seconds += self._cost
        if first:
            print(
                f"TrainingLog {self.run!r}: the first point took {self._cost:.1f} s; points take "
                f"at most {self._share:.0%} of the time.",
                file=sys.stderr,
            )

    def _measure(self, model: Any, step: int) -> None:
        if self.steps and step <= self.steps[-1]:
            return
        if self._lab is None or self._model is not model:
            if not self.steps:
                self._begin(step)
            self._lab = Lab(model, self._tokenizer, self.run, step, self._lab)
            self._model = model
        self._lab.step = step
        with self._lab.opened() as lab:
            located = catalog.locate(lab.model)
            words, vocabulary = self._lab.tokenizer, located.geometry.n_vocab
            context = self._context or min(located.geometry.n_ctx, CONTEXT)
            run = describe_run(
                located,
                corpus=None if words else _random_windows(vocabulary, context, self._windows),
                context=context,
                windows=self._windows,
                start_token=words is not None and words.known_start() is not None,
            )
            query = min(DEFAULT_QUERY, run.context - 1)
            requests = [
                Request(
                    analysis=analysis.name,
                    run=run,
                    params=asked_with(
                        analysis, run, located.geometry, query=query, skip=DEFAULT_SKIP
                    ).model_dump(),
                )
                for analysis in self._questions
            ]
            for request in requests:  # together, so that they share a pass
                if lab.engine.cached(request) is None:
                    lab.engine.submit(request)
            for request in requests:
                lab.engine.result(request)
            lab.ran(run)
            self.steps.append(step)
            while len(self.steps) > KEPT:
                dropped = crowded(self.steps)
                self.steps.remove(dropped)
                attached.forget(self.run, [dropped])

    def _begin(self, step: int) -> None:
        """Go on with a run of this name that ended before, or forget it."""
        known = attached.steps_of(self.run)
        if known and max(known.values()) < step:
            self.steps = sorted(known.values())
        elif known:
            attached.forget(self.run)
            print(
                f"TrainingLog {self.run!r}: begun anew, its older steps are gone.", file=sys.stderr
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Take over the Trainer's tokenizer."""
        self._tokenizer = self._tokenizer or given.get("processing_class")

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure the model if a point is due."""
        if state.is_world_process_zero:
            self(given["model"], state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure the model as it is in the end."""
        if state.is_world_process_zero:
            self.finish(given["model"], state.global_step)


def _random_windows(vocabulary: int, context: int, windows: int) -> Path:
    many = "" if windows == WINDOWS else f"-{windows}"
    file = default_directory() / "windows" / f"random-{vocabulary}-{context}{many}.npy"
    if not file.is_file():
        drawn = np.random.default_rng(0).integers(vocabulary, size=(windows, context))
        np.save(data := BytesIO(), drawn)
        write_file(file, data.getvalue())
    return file


def crowded(steps: Sequence[int]) -> int:
    """Return the step between whose neighbours, in log steps, there is least; not the ends."""
    gaps = {
        steps[at]: math.log1p(steps[at + 1]) - math.log1p(steps[at - 1])
        for at in range(1, len(steps) - 1)
    }
    return min(gaps, key=lambda step: gaps[step])
