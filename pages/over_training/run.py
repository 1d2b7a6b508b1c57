"""The checkpoints of the model, and the results on them."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import streamlit as st

from pages.shared.cards.embed import in_place_of
from pages.shared.cards.plain import plain, say_error
from pages.shared.choices.fit import choose_one, fitted_flag, fitted_index
from pages.shared.jobs import results
from pages.shared.jobs.pressed import is_wanted, offer
from pages.shared.selection.pins import with_model
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.training.figures import STEPS, TOKENS
from poskernel_core.analyses.training.spec import (
    CheckpointParams,
    OfCheckpoints,
    OverTraining,
    OverTrainingParams,
)
from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.models import catalog
from poskernel_core.models.catalog import official_name
from poskernel_core.models.training import LOG, TrainingRun, schedule_for

MANY = 40
"""If there are more checkpoints, the default is those nearest to powers of two."""

NAMED = 6
NONE = "no other run"

C = TypeVar("C", bound=CheckpointParams)
Asked: TypeAlias = tuple[type[OfCheckpoints[C]], C]


@dataclass(frozen=True)
class Chosen:
    """The training run on the page.

    Attributes:
        selection: the sidebar's selection.
        training: the checkpoints.
        over: the axis: steps or tokens.
        beside: whether it is drawn beside the sidebar's run.
        answers: results fetched so far, by question and parameters.
    """

    selection: Selection
    training: TrainingRun
    over: str = STEPS
    beside: bool = False
    answers: dict[Any, Result | None] = field(default_factory=dict, repr=False)

    def choose_axis(self) -> str:
        """Draw the choice of the axis; return it."""
        known = all(checkpoint.tokens is not None for checkpoint in self.training.checkpoints)
        return choose_one("Against", [STEPS, TOKENS] if known else [STEPS], "axis")

    def missing(self, *requests: Asked[Any]) -> list[str]:
        """Return the checkpoints without a stored result of one of these.

        Raises:
            PosKernelError: a request does not fit.
        """
        absent = {
            name
            for question, params in requests
            for name in results.missing(question, self.selection.run, self._of_all(params))
        }
        return [name for name in self._names if name in absent]

    def fetch(self, question: type[OfCheckpoints[C]], params: C) -> Result | None:
        """Return the result on all checkpoints, or on those that are stored.

        Missing ones are computed once the reader has asked for them. Each result is fetched once,
        however many figures show it.
        """
        key = (question.name, params)
        if key not in self.answers:
            self.answers[key] = self._fetch(question, params)
        return self.answers[key]

    def _fetch(self, question: type[OfCheckpoints[C]], params: C) -> Result | None:
        run = self.selection.run
        missing = self.missing((question, params))
        if not missing or is_wanted(self.key):
            result = results.fetch(question, run, self._of_all(params))
            if result is not None:
                return result
        there = ",".join(name for name in self._names if name not in missing)
        if not there:
            return None
        return results.fetch(question, run, params.model_copy(update={"checkpoints": there}))

    @property
    def key(self) -> str:
        """The key under which a reader asks for all checkpoints."""
        return f"checkpoints-{self.training.model}"

    @property
    def _names(self) -> list[str]:
        return [checkpoint.revision for checkpoint in self.training.checkpoints]

    def _of_all(self, params: C) -> C:
        return params.model_copy(update={"checkpoints": ",".join(self._names)})


def offer_to_compute(chosen: Chosen, *requests: Asked[Any]) -> None:
    """Say which checkpoints are not computed yet, with a button that computes all of them.

    Raises:
        PosKernelError: a request does not fit.
    """
    missing = chosen.missing(*requests)
    if not missing or is_wanted(chosen.key):
        return
    whose = f" of {chosen.training.model}" if chosen.beside else ""
    few = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
    every = len(chosen.training.checkpoints)
    what = plain(f"{len(missing)} of {every} checkpoints{whose} ({few})")
    button = f"compute-checkpoints{'-beside' * chosen.beside}"
    with in_place_of():
        offer(what, "Compute them", button, chosen.key, located=chosen.selection.located)


def choose_run(selection: Selection) -> Chosen | None:
    """Return the checkpoints of the model; None, with an error, if it has none."""
    name = selection.run.model.name
    try:
        training = results.training(name)
    except BadRequest as error:
        say_error(str(error))
        return None
    if training is None:
        say_error(f"{name} has no checkpoints of its training: choose another model.")
        return None
    if len(training.checkpoints) > MANY:
        every = st.toggle(
            f"All {len(training.checkpoints)} checkpoints, not only those nearest to powers of two",
            **fitted_flag("everystep"),
        )
        training = training if every else training.chosen(LOG)
    return Chosen(selection, training)


def choose_other(chosen: Chosen) -> Chosen | None:
    """Draw the choice of a second run; return it, read as the first one is.

    What is wrong with it is said below the choice.
    """
    own = chosen.training.model
    names = [
        entry.name for entry in catalog.entries() if entry.name != own and _has_run(entry.name)
    ]
    if not names:
        return None
    name = st.selectbox(
        "Beside it",
        format_func=catalog.title_here,
        **fitted_index("alongside", [NONE, *names], NONE),
    )
    try:
        training = None if name in (None, NONE) else results.training(name)
        if training is None:
            return None
        selection = with_model(chosen.selection, name)
    except PosKernelError as error:
        say_error(str(error))
        return None
    if len(chosen.training.checkpoints) < len(training.checkpoints) > MANY:
        training = training.chosen(LOG)
    known = all(checkpoint.tokens is not None for checkpoint in training.checkpoints)
    return Chosen(selection, training, chosen.over if known else STEPS, beside=True)


def ask_other(other: Chosen, params: OverTrainingParams) -> Result | None:
    """Return a measure of the second run, or None; what is wrong with it is said."""
    params = params.model_copy(update={"query": other.selection.query})
    try:
        offer_to_compute(other, (OverTraining, params))
        return other.fetch(OverTraining, params)
    except PosKernelError as error:
        say_error(f"{other.training.model}: {error}")
        return None


def _has_run(name: str) -> bool:
    """Tell whether a model's checkpoints are known, without asking the hub."""
    here = catalog.is_local(name) or bool(schedule_for(official_name(name)))
    return here and results.has_checkpoints(name)


def say_what_is_alike(result: Result) -> None:
    """Name checkpoints with the same weights as an earlier one."""
    steps, equal = result.coordinates["step"], result.values["equal_to"]
    alike = [
        f"step {step:,} has the weights of step {int(first):,}"
        for step, first in zip(steps.tolist(), equal.tolist(), strict=True)
        if np.isfinite(first)
    ]
    if alike:
        st.warning("Equal checkpoints: " + "; ".join(alike) + ".", icon=":material/content_copy:")
