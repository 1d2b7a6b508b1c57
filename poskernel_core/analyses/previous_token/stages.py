"""The three stages of one head's attention on one text: raw scores, masked, probabilities."""

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import KEPT_QUERIES, OWN_PASS, Analysis, Progress, Statistics
from poskernel_core.analyses.kernels.kernel import kv_head
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.common.attention import only_visible
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.specs import RunSpec


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
    params = StagesParams
    values = outputs("""
        score [query key], nats: the raw score of every pair of positions, future keys included
        masked_score [query key], nats: the same, NaN where the query may not look (later keys, and
            those before a sliding window)
        pattern [query key], share of attention: the softmax of its rows
    """)
    figure = "stages_figure"
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
