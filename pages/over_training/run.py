"""Which run the page is about: the model's own checkpoints, or those of the bundled run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import streamlit as st

from pages.shared import results
from pages.shared.plain import plain, say_error
from pages.shared.selection import Selection, select_model
from poskernel_core.analyses.training.spec import CheckpointParams, OfCheckpoints
from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.engine.engine import describe_run
from poskernel_core.figures.training import STEPS, TOKENS
from poskernel_core.models.known import telling_head
from poskernel_core.models.training import LOG, TrainingRun

__all__ = ["Chosen", "choose_run", "say_what_is_alike"]

BUNDLED: Final = "demo-training"
MANY = 40
"""Checkpoints from which on those nearest to powers of two are shown first."""

C = TypeVar("C", bound=CheckpointParams)


@dataclass(frozen=True)
class Chosen:
    """The run that is shown, and how.

    Attributes:
        selection: what the sidebar says, of that run's model.
        training: the checkpoints.
        over: what they stand against: steps or tokens.
    """

    selection: Selection
    training: TrainingRun
    over: str = STEPS

    def choose_axis(self) -> str:
        """Draw what the checkpoints stand against and return it."""
        known = all(each.tokens is not None for each in self.training.checkpoints)
        return (
            st.segmented_control(
                "Against",
                [STEPS, TOKENS] if known else [STEPS],
                default=STEPS,
                required=True,
                key="against",
                bind="query-params",
            )
            or STEPS
        )

    def fetch(self, question: type[OfCheckpoints[C]], params: C) -> Result | None:
        """Return what is known of the checkpoints; say what is not, and offer to compute it."""
        names = [each.revision for each in self.training.checkpoints]
        everything = params.model_copy(update={"checkpoints": ",".join(names)})
        run = self.selection.run
        try:
            missing = results.missing(question, run, everything)
        except PosKernelError as error:
            say_error(str(error))
            return None
        key = f"compute-{question.name}-{getattr(params, 'measure', '')}-{params.skip}"
        if not missing or st.session_state.get(key):
            found = results.fetch(question, run, everything)
            if found is not None:
                return found
        elif missing:
            _offer_to_compute(missing, len(names), key)
        there = [name for name in names if name not in missing]
        if not there:
            return None
        part = params.model_copy(update={"checkpoints": ",".join(there)})
        return results.fetch(question, run, part)


def _offer_to_compute(missing: list[str], every: int, key: str) -> None:
    few = ", ".join(missing[:6]) + (", ..." if len(missing) > 6 else "")
    row = st.container(horizontal=True, vertical_alignment="center")
    row.info(
        plain(f"{len(missing)} of {every} checkpoints are not computed yet: {few}."),
        icon=":material/pending:",
    )
    row.button(
        "Compute them",
        icon=":material/play_arrow:",
        key=f"button-{key}",
        on_click=_compute,
        args=(key,),
    )


def _compute(key: str) -> None:
    st.session_state[key] = True


def choose_run(selection: Selection) -> Chosen | None:
    """Return the checkpoints of the model, or say that it has none and take the bundled run."""
    name = selection.run.model.name
    try:
        training = results.training(name)
        if training is None:
            selection, training = _bundled(selection)
            st.info(
                plain(f"{name} comes without checkpoints of its training; shown is {BUNDLED}."),
                icon=":material/info:",
            )
            st.button(
                f"Select {BUNDLED} on every page",
                icon=":material/timeline:",
                on_click=select_model,
                args=(BUNDLED,),
                key="select-run",
            )
    except BadRequest as error:
        say_error(str(error))
        return None
    if len(training.checkpoints) > MANY:
        every = st.toggle(
            f"All {len(training.checkpoints)} checkpoints, not only those nearest to powers of two",
            False,
            key="every",
            bind="query-params",
        )
        training = training if every else training.chosen(LOG)
    return Chosen(selection, training)


def _bundled(selection: Selection) -> tuple[Selection, TrainingRun]:
    """Return the bundled run, and what the sidebar says as far as that model can follow."""
    training = results.training(BUNDLED)
    assert training is not None  # it comes with the project
    located = results.located(BUNDLED, None)
    geometry = located.geometry
    run = describe_run(BUNDLED)
    layer, head = parse_cell(
        telling_head(BUNDLED, "induction"), geometry.n_layers, geometry.n_heads
    )
    shown = replace(
        selection, located=located, run=run, layer=layer, head=head, query=run.context - 1
    )
    return shown, training


def say_what_is_alike(found: Result) -> None:
    """Name checkpoints that hold the weights of an earlier one."""
    steps, equal = found.coordinates["step"], found.values["equal_to"]
    alike = [
        f"step {step:,} has the weights of step {int(first):,}"
        for step, first in zip(steps.tolist(), equal.tolist(), strict=True)
        if np.isfinite(first)
    ]
    if alike:
        st.warning("Equal checkpoints: " + "; ".join(alike) + ".", icon=":material/content_copy:")
