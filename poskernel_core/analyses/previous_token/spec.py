"""Previous-token heads: ranking, which mechanism they use, and the stages of one on a text."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import (
    KEPT_QUERIES,
    OWN_PASS,
    Analysis,
    Params,
    Progress,
    Statistics,
)
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.kernels.kernel import kv_head
from poskernel_core.analyses.previous_token import formulas as bands
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.common.attention import only_visible
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result, estimates, outputs, ranges
from poskernel_core.common.specs import BAND, RunSpec
from poskernel_core.common.views import StatisticsView, stacked

DOUBLED_TEXTS = 100
PARTS = ("position_", "content_")
DIAGONALS = ("dark main diagonal", "bright first diagonal", "neither")
MECHANISMS = (
    "negative self-attention",
    "aggregator",
    "by position",
    "previous token, other",
    "current token",
    "look back",
    "no diagonal stands out",
)


def read_diagonal(contrast: np.ndarray, error: np.ndarray, least: float) -> np.ndarray:
    """Return every head's diagonal ``[layer, head]`` as codes of :data:`DIAGONALS`.

    ``error`` is the standard error of ``contrast [layer, head, 2]``. A contrast below ``least``
    standard errors counts as none.
    """
    limit = least * np.nan_to_num(error)
    depth, height = -contrast[..., 0], contrast[..., 1]
    dark = (depth > limit[..., 0]) & (depth >= height)
    bright = (height > limit[..., 1]) & (height > depth)
    return np.where(dark, 0, np.where(bright, 1, 2))


def read_kind(values: Mapping[str, np.ndarray], least: np.ndarray, clean: float) -> np.ndarray:
    """Return every head's kind ``[layer, head]`` as codes of :data:`MECHANISMS`.

    ``least [layer, head, 2]``: what the content's dip at offset 0 and its peak at 1 must exceed.
    """
    largest, least = values["largest_offset"], np.nan_to_num(least)
    self_kink, previous_kink = bands.contrasts(values["content_profile"])
    content = values["content_advantage"] > np.maximum(values["position_advantage"], 0)
    position = values["position_advantage"] > np.maximum(values["content_advantage"], 0)
    later = np.arange(len(largest))[:, None] > 0
    dip = (-self_kink > least[..., 0]) & (-self_kink >= previous_kink)
    peak = (previous_kink > least[..., 1]) & (previous_kink > -self_kink) & later
    by_content = np.where(dip, 0, np.where(peak, 1, 3))
    previous = np.where(content, by_content, np.where(position, 2, 3))
    kinds = np.where(largest == 1, previous, np.where(largest == 0, 4, 5))
    return np.where(values["ratio"] >= clean, 6, kinds)


class PreviousTokenParams(Params):
    """Parameters of the ranking."""

    repeat_every: int = Field(
        8, ge=2, le=256, description="repeated tokens: spacing of tokens that copy the one before"
    )
    errors: float = Field(
        2.0, ge=0, le=10, description="standard errors that a dark or bright diagonal must exceed"
    )
    clean: float = Field(
        0.9, ge=0, le=1, description="second over largest diagonal: from here on, none stands out"
    )


class PreviousToken(Analysis[PreviousTokenParams]):
    r"""Every head's largest diagonals, how clean they are, and the mechanism behind them.

    ``[layer, head]`` each.

    Formula: $P(k) = \mathbb{E}_{\text{text},\,n}\, A(n, n-k)$; $\bar s(k) =
    \mathbb{E}_{\text{text},\,n}\, s(n, n-k)$, future keys included; contrasts are $\bar s(k)$ minus
    the line through $\bar s(-1)$ and $\bar s(2)$.

    Choices: only offsets up to half of the context count; diagonals farther off are means over few
    pairs, most of them with the first keys. The post reads kinds off pictures; here dip and peak
    must exceed ``errors`` standard errors of the contrast, and the split of the score into position
    and content decides. The part by position is the mean score of a query and a key of different
    texts: with $p$ the score of mean query and mean key over $N$ texts, it is
    $(N p - \bar s) / (N - 1)$.

    Limits: which diagonal is the largest, or second, differs from texts to texts where several are
    nearly equal, so ``largest_mass``, ``second_mass`` and ``ratio`` are too large from few texts.
    With a soft cap, the part by position excludes pairs from the same text only approximately.

    Source: "The positional embedding matrix and previous-token heads".
    """

    name = "previous-token"
    title = "Previous-token heads"
    noun_phrase = "the ranking of previous-token heads"
    error_counts = "windows"
    values = (
        *outputs("""
            ± profile [layer head offset], share of attention: the diagonals: mean attention $P(k)$
                to the token $k$ places back
        """),
        *ranges("""
            largest_offset second_offset [layer head], tokens: the diagonals with the most and the
                second most attention
        """),
        *estimates(
            """
            largest_mass second_mass [layer head], share of attention: their mean attention
            ratio [layer head], second over largest: second over largest; smaller is cleaner. A head
                is loosely a previous-token head if its largest offset is 1
            """,
            kind="distance",
            bounds=(0, 1),
        ),
        *outputs("""
            share_previous, share of heads: share of all heads whose largest offset is 1
            % previous_mass [layer head], share of attention: $P(1)$
            ± score_profile [layer head band], score (nats): mean raw score by offset $n - i$ from
                -32 to 32, the sum of its parts by position and by content
            ± position_profile content_profile [layer head band], score (nats): its parts by
                position alone (mean query times mean key, without pairs from the same text, whose
                content would count), and by content (the rest)
            ± self_contrast previous_contrast [layer head], score (nats): the mean raw score at
                offset 0 and at offset 1, against the straight line through its neighbours at -1 and
                2
            ± position_advantage content_advantage [layer head], score (nats): by how much the mean
                score of the predecessor exceeds that of the current token, by position alone and by
                content
            % repeated_mass unrepeated_mass [layer head], share of attention: mean $A(n,n-1)$ in
                texts with doubled tokens, where token $n$ equals token $n-1$ (made copies and the
                text's own repeats), and where it differs
        """),
        *outputs(
            "diagonal [layer head], diagonal: dark (``self_contrast`` negative and the larger of "
            "the two), bright (``previous_contrast`` positive and the larger), or neither",
            labels=DIAGONALS,
        ),
        *outputs(
            "kind [layer head], kind: where ``ratio`` is at least ``clean``, no diagonal stands "
            "out. A previous-token head works ``by position`` where the advantage by position is "
            "the larger one. Else the content decides: a dark main diagonal (a dip of the content "
            "part at offset 0) is negative self-attention; a bright first diagonal (a peak at 1), "
            "beyond layer 0, aggregates what earlier heads wrote",
            labels=MECHANISMS,
        ),
    )
    narrow_below = (("largest_mass", 500), ("previous_mass", 500), ("repeated_mass", 500))
    measures = grid_measures("""
        previous-token ratio [ratio, unit], second diagonal over the largest ↓: Dark: one diagonal
            of the mean attention stands out from all others.
        attention to the previous token [previous_mass, linear], share of attention: Bright: the
            head attends to the token before.
    """)
    continued = "profile"
    precomputed = "always"
    ignores = KEPT_QUERIES

    def needs(self, run: RunSpec, params: PreviousTokenParams) -> Mapping[str, RunSpec]:
        doubled = run.model_copy(
            update={
                "windows": min(run.windows, DOUBLED_TEXTS),
                "repeat_every": params.repeat_every,
                "positions": (run.context - 1,),
                "gather": ("repeats",),
            }
        )
        return {"main": run, "doubled": doubled}

    def compute(
        self, statistics: Statistics, params: PreviousTokenParams, progress: Progress
    ) -> Result:
        main, doubled = statistics["main"], statistics["doubled"]
        profile, scores = (_stacked(main, name) for name in ("profile", "score_profile"))
        values = diagonals(profile) | {"profile": profile, "score_profile": scores}
        values |= _split(main, scores)
        there = _stacked(doubled, "repeat_texts")[:, None]
        known = np.where(2 * there * doubled.header.windows > 1, there, np.nan)  # rounding left
        repeats = np.moveaxis(_stacked(doubled, "repeats") / known, -1, 0)
        values["unrepeated_mass"], values["repeated_mass"] = repeats
        values["self_contrast"], values["previous_contrast"] = bands.contrasts(scores)
        kept = np.delete(values["largest_offset"], list(main.header.reasons), axis=0)
        values["share_previous"] = np.array((kept == 1).mean())
        for code in ("diagonal", "kind"):  # by errors, once these are known
            values[code] = np.full(values["self_contrast"].shape, -1)
        progress(1, 1)
        return self.result(params, values, coordinates={"band": np.arange(-BAND, BAND + 1)})

    def replicate(
        self, statistics: Statistics, params: PreviousTokenParams, progress: Progress
    ) -> Result:
        """Compute a replicate; with only one text, position and content cannot be separated."""
        result = self.compute(statistics, params, progress)
        if statistics["main"].header.windows > 1:
            return result
        parts = {n: a * np.nan for n, a in result.values.items() if n.startswith(PARTS)}
        return replace(result, values=result.values | parts)

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Classify the heads by their corrected values, with their errors."""
        names = ("self_contrast", "previous_contrast")
        if not {*names, "kind"} <= result.values.keys() & result.errors.keys() | {"kind"}:
            return result
        contrast, error = (
            np.stack([part[name] for name in names], axis=-1)
            for part in (result.values, result.errors)
        )
        codes = {
            "diagonal": read_diagonal(contrast, error, result.params["errors"]),
            "kind": read_kind(
                result.values, result.params["errors"] * error, result.params["clean"]
            ),
        }
        return replace(result, values={**result.values, **codes})


def _stacked(view: StatisticsView, name: str) -> np.ndarray:
    return stacked(view, name).astype(np.float64)


def _split(view: StatisticsView, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Return the score profile's two parts, and what each adds to the predecessor's advantage."""
    header = view.header
    position = np.stack(
        [
            bands.position_profile(
                view.layer(layer)["mean_queries"],
                view.layer(layer)["mean_keys"],
                header.rule(layer),
                int(header.start_token),
            )
            for layer in range(header.n_layers)
        ]
    )
    position = bands.without_bias(position, scores, header.windows)
    parts = {"position": position, "content": scores - position}
    values = {f"{name}_profile": part for name, part in parts.items()}
    for name, part in parts.items():
        values[f"{name}_advantage"] = part[..., BAND + 1] - part[..., BAND]
    return values


def diagonals(profile: np.ndarray) -> dict[str, np.ndarray]:
    """Return the two largest diagonals of every profile ``[layer, head, offset]``."""
    counted = profile[..., : profile.shape[-1] // 2 + 1]
    order = np.argsort(-counted, axis=-1, kind="stable")[..., :2]
    mass = np.take_along_axis(profile, order, axis=-1)
    values = {"ratio": mass[..., 1] / mass[..., 0], "previous_mass": profile[..., 1]}
    for place, name in enumerate(("largest", "second")):
        values[f"{name}_offset"] = order[..., place]
        values[f"{name}_mass"] = mass[..., place]
    return values


class StagesParams(TextParams):
    """Parameters of the three stages."""

    head: str = Field(description="the head, such as L0H3")


class Stages(Analysis[StagesParams]):
    r"""One head's attention on one text, in three stages.

    Formula: $s(n,i) = \text{scale}\; q_n \cdot k_i$; $A(n,\cdot) = \mathrm{softmax}_i\, s(n,i)$
    over the visible $i$.

    Choices: the text is the reader's own or the first of the corpus, cut to the context.

    Limits: one text shows what the head does there, not on average.

    Source: "Step 1" to "Step 3" of "The positional embedding matrix and previous-token heads".
    """

    name = "stages"
    title = "Three stages of attention"
    noun_phrase = "the three stages of attention"
    values = outputs("""
        score [query key], nats: the raw score of every pair of positions, future keys included
        masked_score [query key], nats: the same, NaN where the query may not look (later keys, and
            those before a sliding window)
        pattern [query key], share of attention: the softmax of its rows
    """)
    ignores = KEPT_QUERIES | OWN_PASS | {"corpus", "windows", "seed"}

    def with_params(self, run: RunSpec, params: StagesParams) -> RunSpec:
        return text_run(run, params, whole=True)

    def compute(self, statistics: Statistics, params: StagesParams, progress: Progress) -> Result:
        view = statistics["main"]
        header = view.header
        layer, head = parse_cell(params.head, header.n_layers, header.n_heads)
        arrays = view.layer(layer)
        queries = arrays["queries"][:, head, 0].astype(np.float64)
        keys = arrays["mean_keys"][kv_head(view, head)][0].astype(np.float64)
        rule, all_of_it = header.rule(layer).of_heads(slice(head, head + 1)), slice(0, len(keys))
        score = rule.scores((queries @ keys.T)[None], all_of_it, all_of_it)[0]
        masked = only_visible(score, rule.window, rule.chunk)
        weights = np.exp(np.nan_to_num(masked - np.nanmax(masked, axis=1, keepdims=True), nan=-1e9))
        pattern = weights / weights.sum(axis=1, keepdims=True)
        progress(1, 1)
        values = {"score": score, "masked_score": masked, "pattern": pattern}
        return self.result(
            params, {name: array.astype(np.float32) for name, array in values.items()}
        )
