"""The metrics of HeadVis, and example texts for every head."""

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import (
    Analysis,
    Experiment,
    Params,
    Progress,
    Statistics,
)
from poskernel_core.common.result import Result, estimates, outputs
from poskernel_core.common.views import stacked


class HeadVisMetrics(Analysis[Params]):
    r"""The six metrics by which HeadVis describes a head, computed as HeadVis computes them.

    Formula: with $N$ tokens in all texts, $\frac{1}{N}\sum A(q,q)$; $\sum A(q,q-1)$ over the number
    of tokens that have a predecessor; $-\frac{1}{N}\sum A \ln A$; $\frac{1}{N}\sum A\,(q-k)$;
    $\frac{1}{N}\sum A\,(q-k)^2$ minus the square of the mean distance; and $\sum_q
    \sum_{j<q,\; t_j = t_q} A(q,j+1)$ over the number of queries whose token occurred before.

    Choices: sums run over all tokens of all texts and are divided once. Key 0 and the start token
    are included and no key is skipped, so that the numbers are those of HeadVis. Attention below
    0.01 counts as none in the induction score.

    Limits: many heads park their attention on the first key, which then dominates distance, its
    variance and entropy. So these metrics are for comparison with tables of HeadVis; our measures
    of position leave the first keys out.

    Source: "HeadVis" (Luger, Kamath et al., transformer-circuits.pub, 2026), as the pipeline of
    Neuronpedia computes it.
    """

    name = "headvis"
    title = "Metrics of HeadVis"
    noun_phrase = "the metrics of HeadVis"
    error_counts = "windows"
    values = estimates(
        """
        self_attention_score [layer head], share of attention: mean attention to the token itself
        prev_token_score [layer head], share of attention: mean attention to the token before
        pattern_entropy [layer head], nats: mean entropy of an attention row
        qk_distance [layer head], tokens: mean distance of the attended key
        qk_distance_variance [layer head], tokens squared: variance of that distance
        induction_score [layer head], share of attention: mean attention to what followed earlier
            occurrences of the token; NaN where none repeats
        """,
        kind="plain",
    )
    narrow_below = (
        ("self_attention_score", 500),
        ("prev_token_score", 500),
        ("induction_score", 500),
        ("pattern_entropy", 0),
        ("qk_distance", 0),
    )
    gathers = ("headvis",)

    def compute(self, statistics: Statistics, params: Params, progress: Progress) -> Result:
        view = statistics["main"]
        arrays = metrics(
            stacked(view, "headvis"), stacked(view, "headvis_repeats"), view.header.context
        )
        progress(1, 1)
        return self.result(
            params, {value.name: one for value, one in zip(self.values, arrays, strict=True)}
        )


def metrics(sums: np.ndarray, repeats: np.ndarray, context: int) -> Iterator[np.ndarray]:
    """Yield the metrics, ``[layer, head]`` each.

    ``sums [layer, head, quantity]``: sums over the tokens of a text, on average. ``repeats
    [layer]``: how many tokens of a text have occurred earlier in the same text, on average.
    """
    own, previous, entropy, distance, square, induction = np.moveaxis(sums.astype(float), -1, 0)
    again = repeats.astype(float)[:, None]
    yield own / context
    yield previous / (context - 1) if context > 1 else previous * np.nan
    yield entropy / context
    yield distance / context
    yield square / context - (distance / context) ** 2
    yield np.divide(induction, again, out=np.full_like(induction, np.nan), where=again > 0)


class HeadExamplesParams(Params):
    """Parameters of the example texts."""

    intervals: int = Field(5, ge=1, le=10, description="intervals of the largest attention")
    per_interval: int = Field(3, ge=1, le=20, description="texts drawn from each but the last")
    in_last: int = Field(10, ge=1, le=50, description="texts in the last, with most attention")


class HeadExamples(Experiment[HeadExamplesParams]):
    r"""Texts of every head, from those in which it attends least to those in which it attends most.

    Formula: a text's largest attention is $\max A(q,k)$ over $q, k \ge 1$. Its quantiles over the
    first texts are the limits of the intervals. For each kept text, the eight largest $A(q,k)$ of
    every row are stored.

    Choices: the texts of an interval are a uniform sample of all that fall into it; the last
    interval keeps those with most attention. Intervals are cut at the quantiles of up to 200 texts.
    Key 0 and query 0 do not count for the largest attention; key 0 can be among the eight largest.

    Limits: the number of texts per head is bounded. A head that attends fully to one key in every
    text has the same largest attention in all, so its intervals are meaningless.

    Source: "HeadVis" (Luger, Kamath et al., transformer-circuits.pub, 2026) shows such sequences.
    """

    name = "head-examples"
    title = "Example texts of heads"
    noun_phrase = "example texts of all heads"
    error_counts = "windows"
    values = outputs("""
        interval [layer head example], number: from 1 (least attention); 0: no text
        example_text [layer head example], number: number of the window; -1: no text
        max_activation [layer head example], share of attention: the largest attention in that text
        top_key [layer head example pos rank], position: the most attended keys
        top_attention [layer head example pos rank], share of attention: attention to them; 0 where
            there are fewer keys
        activation_histogram [layer head bin], texts: texts by their largest attention, in 50 bins
            from 0 to 1
        % mean_max_activation [layer head], share of attention: mean over texts of their largest
            attention
        token [text pos], number: which of the words each token of the texts is
    """)
    texts = outputs("words [word], token: the different tokens of the texts that are kept")
    ignores = Experiment.ignores | {"positions"}
    long = True
    runs = "head_examples"
