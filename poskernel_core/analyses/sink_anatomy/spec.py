"""What makes the first key a sink: standing first, position 0, the start token, or the queries."""

from typing import Any

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.sinks.spec import SinkParams
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import estimates, outputs
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.geometry import Geometry

FRONT = 2
"""Tokens before the text: target and filler."""

DISTANCES = (8, 64, 512)
"""How far the first key is moved back, in tokens, as far as the model's context allows."""


class SinkAnatomyParams(SinkParams):
    """Parameters of the anatomy of sinks."""

    texts: int = Field(30, ge=2, le=1000, description="texts behind the two front tokens")
    length: int = Field(48, ge=2, le=1000, description="tokens of a text, whose queries count")


class SinkAnatomy(Experiment[SinkAnatomyParams]):
    r"""What makes the first key a sink: its place, its position id, its token, or the queries.

    In ordinary text the first key stands first, has position 0, and is the start token, all at
    once. Here two front tokens stand before a text: the *target*, which is the start token or an
    ordinary token, and a *filler*. The target stands first or second and has position id 0 or 1;
    the filler takes the other place and the other id. The text's places and ids never change. So
    there are eight arrangements.

    Formula: $a$ is the attention to the target, a mean over the text's queries and over texts. A
    main effect is the mean of $a$ over the arrangements with a property, less that over those
    without. An interaction is half the difference between one property's effect with another and
    without; in general the mean of $a$ where the product of the properties' signs is 1, less the
    mean where it is -1. *Key or query*: $b_{ij}$ is the attention to the first key of run $i$ under
    the queries, and beside the other keys, of run $j$; runs have the start token ($s$) or an
    ordinary one ($o$) first, with ids in order. The effect through the key is
    $\tfrac12[(b_{ss} - b_{os}) + (b_{so} - b_{oo})]$, that through the queries
    $\tfrac12[(b_{ss} - b_{so}) + (b_{os} - b_{oo})]$. The two add up to $b_{ss} - b_{oo}$.

    Choices: a head has a sink where the start token, first and at position 0, gets ``threshold`` or
    more. The other heads have no numbers, and ``reason`` says so. The start token is the
    tokenizer's beginning-of-text token, else its end-of-text token; a model without either is
    refused. The ordinary target and the filler are a text's own first two tokens. With rotary
    positions, ALiBi or none, ids mean nothing by themselves, because a common shift changes no
    pattern. So there are four arrangements and no effect of position 0. With rotary positions the
    first key's id alone is also moved back, by ``distance``.

    Limits: in models with ALiBi or no positions no key can be moved back by an id, so ``distance``
    has 0 only. With learned positions the distance is part of the effect of position 0. In layer 0
    the queries of a text do not depend on the front tokens, so their effect is 0. A filler at id 0,
    or a start token at the second place, is nothing that the model was trained on. Attention is
    bounded by 1, so factors that are each enough alone show as smaller main effects with negative
    interactions. Some ordinary first tokens, such as punctuation, may be sinks by themselves; the
    effects are means over them.

    Source: ours. "Efficient streaming language models with attention sinks" (2309.17453) replaces
    the first tokens by line breaks; "When attention sink emerges in language models" (2410.10781)
    finds sinks on the first token of random sequences.
    """

    name = "sink-anatomy"
    title = "What makes the first key a sink"
    noun_phrase = "what makes the first key a sink"
    error_counts = "texts"
    values = estimates("""
        % sink [layer head], share of attention: mean attention to the start token, first and at
            position 0
        % attention [layer head arrangement front_key], share of attention: mean attention to the
            key that stands first, and to the second, in each arrangement
        standing_first position_zero start_token [layer head], share of attention: effects on the
            attention to the target: of standing first, of having position id 0 (learned positions
            only), of being the start token
        interaction [layer head factors], share of attention: what the factors do together only
        % exchanged [layer head key_run query_run], share of attention: $b_{ij}$: attention to the
            first key of one run under the queries of another; 0: start token first, 1: ordinary
            token first
        key_effect query_effect [layer head], share of attention: effect of the start token in place
            of an ordinary first token, through the first key, and through the queries and the other
            keys
        % moved_back [layer head distance], share of attention: mean attention to the start token,
            first, with its id alone moved back
    """)
    texts = outputs("""
        arrangements [arrangement], name: the front tokens and their position ids
        factors [factors], name: the factors of each interaction
        reason [layer head], sentence: why a head has no numbers; empty if it has
    """)
    precomputed = "experiments"
    measures = (
        *grid_measures("""
            sink by standing first [standing_first, diverging], share of attention: Bright: what
                stands first is the sink. Heads without a sink have no number.
        """),
        *grid_measures(
            "sink by position 0 [position_zero, diverging], share of attention: Bright: what has "
            "position 0 is the sink. Heads without a sink have no number.",
            only=("learned",),
        ),
        *grid_measures("""
            sink by the start token [start_token, diverging], share of attention: Bright: the start
                token is the sink, wherever it stands. Heads without a sink have no number.
        """),
    )
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    runs = "sink_anatomy"

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        return {"length": max(2, min(48, run.context - FRONT - run.start_token))}

    def with_params(self, run: RunSpec, params: SinkAnatomyParams) -> RunSpec:
        need = FRONT + params.length + run.start_token
        if need > run.context:
            raise BadRequest(
                f"Texts of {params.length} tokens behind two front tokens need a context of {need} "
                f"tokens or more, got {run.context}: ask for shorter ones."
            )
        return run.model_copy(update={"windows": params.texts, "positions": (0,)})
