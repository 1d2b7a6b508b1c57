"""The kernel of one head as a map: key position against query position."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Progress, Statistics
from poskernel_core.analyses.kernels import formulas
from poskernel_core.analyses.kernels.kernel import kv_head, observed_row
from poskernel_core.analyses.sources import SourceParams, queries_at, query_positions, source_runs
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.specs import RunSpec


class KernelMapParams(SourceParams):
    """Parameters of one head's map."""

    head: str = Field("L0H0", description="the head, such as L0H3")


class KernelMap(Analysis[KernelMapParams]):
    r"""The kernel and the observed attention of one head at all query positions.

    Formula: that of the positional kernel, at every recorded $n$.

    Choices: rows are the recorded positions (means over sampled windows); if the queries are those
    of one text, rows are all positions of the text. Invisible keys are NaN.

    Limits: nothing is interpolated between recorded positions; rows are drawn equally high.

    Source: "Positional kernels of attention heads".
    """

    name = "kernel-map"
    title = "Kernel of one head over all query positions"
    noun_phrase = "the head's kernel at all query positions"
    values = outputs("""
        kernel [query key], share of attention: the positional kernel, one row for each query
            position; NaN where a key is not visible
        observed [query key], share of attention: the attention seen, ``skip`` applied and
            renormalised
    """)
    continued = "kernel"

    def needs(self, run: RunSpec, params: KernelMapParams) -> Mapping[str, RunSpec]:
        if params.source == "token":
            raise BadRequest(
                "A fixed token's queries are taken at one query position: use 'kernel', or "
                "source 'mean' or 'text' for a map."
            )
        return source_runs(run, params, None)

    def compute(
        self, statistics: Statistics, params: KernelMapParams, progress: Progress
    ) -> Result:
        header = statistics["main"].header
        layer, head = parse_cell(params.head, header.n_layers, header.n_heads)
        positions = query_positions(statistics)
        shape = (len(positions), header.context)
        maps = {"kernel": np.full(shape, np.nan), "observed": np.full(shape, np.nan)}
        for place, n in enumerate(positions.tolist()):
            if (low := header.rule(layer).first_visible(n, params.skip)) <= n:
                maps["kernel"][place, low : n + 1] = _row(statistics, layer, head, n, low)
                seen = observed_row(statistics, layer, n, low, head)
                maps["observed"][place, low : n + 1] = np.nan if seen is None else seen[0]
            progress(place + 1, len(positions))
        return self.result(
            params,
            {name: values.astype(np.float32) for name, values in maps.items()},
            coordinates={"query": positions},
        )


def _row(statistics: Statistics, layer: int, head: int, n: int, low: int) -> np.ndarray:
    view = statistics["main"]
    keys = view.layer(layer)["mean_keys"][kv_head(view, head), low : n + 1]
    queries = queries_at(statistics, layer, n)[head : head + 1]
    rule = view.header.rule(layer).of_heads(slice(head, head + 1))
    return formulas.kernel_rows(queries, keys, rule, low)[0].mean(axis=0)
