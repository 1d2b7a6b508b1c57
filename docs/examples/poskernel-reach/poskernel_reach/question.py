"""The reach of a kernel: how many tokens back it looks on average."""

import numpy as np

from poskernel_core.analyses.base import Analysis, Progress, SkipParams, Statistics
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.kernels.etc import queries_of
from poskernel_core.analyses.kernels.formulas import mean_kernels
from poskernel_core.common.result import Result, estimates


class Reach(Analysis[SkipParams]):
    r"""How many tokens back a head's positional kernel looks on average.

    Formula: $r(n) = \sum_i (n - i)\, K(n,i)$, with the mean kernel $K$ over the visible keys
    $i \ge \text{skip}$.

    Choices: the mean is over all kept queries of a position.

    Limits: a kernel with two peaks has a mean where there is no attention at all.

    Source: an example of a plugin.
    """

    name = "reach"
    title = "Reach of the kernels"
    noun_phrase = "how far back the kernels reach"
    values = estimates("reach [layer head query]", "tokens", "mean offset $n - i$ of the kernel")
    measures = (
        HeadMeasure(
            "reach of the kernel",
            "reach",
            "tokens",
            "Bright: the kernel looks far back.",
            "log",
            0.1,
        ),
    )

    def compute(self, statistics: Statistics, params: SkipParams, progress: Progress) -> Result:
        """Average the offsets over every kernel."""
        view = statistics["main"]
        header, positions = view.header, np.array(view.header.positions)

        def of_layer(layer: int) -> dict[str, np.ndarray]:
            keys, rule = view.layer(layer)["mean_keys"], header.rule(layer)
            reach = np.full((header.n_heads, len(positions)), np.nan)
            for place, n in enumerate(positions):
                low = rule.first_visible(int(n), params.skip)
                if low <= n:
                    queries, seen = queries_of(view, layer, place), keys[:, low : n + 1]
                    kernel, _ = mean_kernels(queries, seen, rule, low, header.groups)
                    reach[:, place] = kernel @ np.arange(n - low, -1, -1)
            return {"reach": reach}

        values = self.of_layers(statistics, progress, of_layer)
        return self.result(params, values)
