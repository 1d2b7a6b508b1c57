"""Interventions: one prompt clean and with one change, and the loss with averaged positions."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, Params
from poskernel_core.analyses.helix import formulas
from poskernel_core.analyses.sources import OnText, TextParams
from poskernel_core.common.result import estimates, outputs
from poskernel_core.common.specs import RunSpec

REPEATED_TOKENS = 100
Change = Literal["average", "blind", "move", "ablate", "remove"]


class AveragingPlace(Params):
    """Parameters that say where positions are averaged."""

    layer: int | None = Field(
        None, ge=0, description="average: in the stream before this layer (default: in W_pos)"
    )
    keep: int = Field(
        0, ge=0, le=1000, description="average: first positions left as they are (huge vectors)"
    )


class InterventionParams(TextParams, AveragingPlace):
    """Parameters of an intervention; parameters of changes that are not chosen are ignored."""

    head: str = Field("L0H0", description="the head whose pattern is shown, such as L0H3")
    change: Change = Field(
        "average",
        description="average positions, blind to predecessors (attention knockout), move "
        "attention, ablate heads, or remove embeddings",
    )
    group: int = Field(10, ge=1, le=1_000_000, description="average: positions per group")
    every: int = Field(5, ge=1, le=1_000_000, description="blind: spacing of the blinded positions")
    layers: str = Field(
        "", max_length=200, description="blind: layers, such as 0-3 (default: the first four)"
    )
    stage: Literal["scores", "pattern"] = Field(
        "pattern", description="blind, move: before (scores) or after (pattern) the softmax"
    )
    edited: str | None = Field(
        None, description="move: the head that is changed (default: the one shown)"
    )
    moves: str = Field(
        "", max_length=2000, description="move: row>key pairs, such as '36>34, pirate>ninja'"
    )
    strength: float = Field(
        10.0, ge=0, le=1000, description="move: nats above the row's largest score"
    )
    scale: float = Field(1.0, ge=-100, le=100, description="move: factor of the output")
    scope: Literal["head", "layer"] = Field("head", description="move: whose output is scaled")
    heads: str = Field("", max_length=4000, description="ablate: heads, such as 'L0H3, L1H4'")
    embeddings: Literal["tokens", "positions"] = Field(
        "positions", description="remove: token or positional embeddings"
    )


def averaged_stream(run: RunSpec) -> Mapping[str, RunSpec]:
    """Return the pass that measures the extended positional embeddings of every layer."""
    return {"repeated": formulas.repeated_run(run, REPEATED_TOKENS)}


class Intervention(OnText[InterventionParams]):
    r"""One prompt, run clean and run with one change.

    Everything after the change is recomputed.

    Formula: $\text{loss} = -\log p(t_n \mid t_{<n})$; $\mathrm{KL}(p_\text{clean} \,\|\,
    p_\text{changed}) = \sum_t p_\text{clean}(t) \log (p_\text{clean}(t) / p_\text{changed}(t))$,
    in nats.

    Choices: averaging replaces each position by the mean of its group: in ``W_pos``, or in the
    stream before a layer by subtracting $X^l_n$ and adding the group's mean. Blinding is attention
    knockout. After the softmax, as in the post, it sets attention to the predecessor to zero (what
    is cut is not redistributed); before the softmax, it sets the score to minus infinity (the rest
    of the row takes the share). Moving gives a row's attention to chosen keys: after the softmax in
    equal parts, before it by raising their scores above the row's largest. The post moves attention
    before the softmax and doubles the output of the whole layer, although its text says that of the
    head; both are offered. An ablated head's output is zero. Removed embeddings are zeros; without
    positions, a rotary model rotates everything as at position 0.

    Limits: only one prompt is run. The error of ``loss_change`` assumes independent positions; KL
    and masses have no errors.

    Source: "The positional embedding matrix and previous-token heads"; removing embeddings follows
    "The previous token head and the look-back-two head".
    """

    name = "intervention"
    uses = ("predictions",)
    title = "Intervention"
    noun_phrase = "the effects of the change"
    error_counts = "positions"
    values = outputs(r"""
        clean changed difference [query key], share of attention: the chosen head's attention in the
            two runs, and changed minus clean
        clean_probability changed_probability [candidate], probability: of the next token after the
            prompt, for the six likeliest of each run; coordinates are token ids
        clean_loss changed_loss [pos], nats: $-\log p$ of each token of the prompt
        mean_clean_loss mean_changed_loss, nats: their means over the prompt
        ± loss_change, nats: changed minus clean, mean over the prompt; its error is over positions
        kl [pos], nats: divergence of the next-token distribution, clean to changed
        last_kl mean_kl, nats: the same after the prompt, and its mean over the prompt
        clean_previous_mass changed_previous_mass previous_mass_change [layer head], share of
            attention: mean attention to the predecessor in the two runs, and changed minus clean
    """)
    texts = outputs("candidates [candidate], token: the likeliest next tokens")
    continued = "change"
    runs = "intervene"

    def needs(self, run: RunSpec, params: InterventionParams) -> Mapping[str, RunSpec]:
        averages = params.change == "average" and params.layer is not None
        return averaged_stream(run) if averages else {}


class AveragingParams(AveragingPlace):
    """Parameters of the table of losses."""

    loss_windows: int = Field(
        16, ge=2, le=1000, description="windows of text the loss is taken over"
    )


class Averaging(Experiment[AveragingParams]):
    r"""The loss with positions averaged in groups of 1 (clean), 5, 10, 20, 50 and 100.

    Formula: $\text{loss} = \mathbb{E}\,[-\log p(t_n \mid t_{<n})]$ over the windows' tokens.

    Choices: positions are averaged in ``W_pos``, or in the stream before a layer; the first
    ``keep`` positions can be exempt.

    Limits: averaging in the stream uses the extended positional embeddings $X^l$, which are
    measured on prompts of one repeated token without a start token. Errors are over groups of
    windows; errors of changes are paired.

    Source: "The positional embedding matrix and previous-token heads": with groups of 5, 10 and 20
    the output is nearly unchanged, at 50 and 100 it is worse.
    """

    name = "averaging"
    uses = ("predictions",)
    title = "Positions averaged in groups"
    noun_phrase = "the loss with positions averaged in groups"
    error_counts = "windows"
    values = estimates("""
        loss [group], nats: mean loss of the next token
        loss_change [group], nats: the loss against the clean run, paired over groups of windows
        % previous_mass [group layer head], share of attention: mean attention to the predecessor
    """)
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    runs = "average"

    def with_params(self, run: RunSpec, params: AveragingParams) -> RunSpec:
        return run.model_copy(update={"windows": params.loss_windows, "positions": (0,)})

    def needs(self, run: RunSpec, params: AveragingParams) -> Mapping[str, RunSpec]:
        return {} if params.layer is None else averaged_stream(run)
