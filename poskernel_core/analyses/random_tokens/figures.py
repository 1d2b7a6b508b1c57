"""Attention over random tokens as figures."""

from collections.abc import Sequence

import plotly.graph_objects as go

from poskernel_core.analyses.random_tokens.rows import norm_curves, trend_figure
from poskernel_core.common.result import Result
from poskernel_core.plotting.parts import Index, last_key, part, title_of


def intrinsic_figure(
    rows: Result, layer: Index, head: Index, query: Index, log_y: bool = False
) -> go.Figure:
    """Mean attention from position `query` to each key 0 to `query`, with its fitted trend."""
    where = {"layer": layer, "head": head, "query": query}
    row, error = part(rows, "pattern", **where)
    at = last_key(row) if query is None else query
    slope, slope_error = part(rows, "slope", **where)
    correlation, _ = part(rows, "rank_correlation", **where)
    return trend_figure(
        row[: at + 1],
        error[: at + 1],
        slope=(float(slope), float(slope_error)),
        correlation=float(correlation),
        first=int(rows.params["trend_from"]),
        log_y=log_y,
        title=title_of(layer, head, f"attention from position {at}"),
    )


def norm_figure(rows: Result, heads: Sequence[int] | None = None) -> go.Figure:
    """The norm of the outputs of layer 0's heads against position (default: of all heads)."""
    norm, error = part(rows, "norm")
    exponent, spread = part(rows, "norm_exponent")
    if norm.ndim != 2:
        raise ValueError("expected the norms of all heads, received those of one")
    visible = part(rows, "visible_keys")[0].astype(float)
    chosen = list(range(len(norm)) if heads is None else heads)
    if any(not 0 <= head < len(norm) for head in chosen):
        raise ValueError(f"expected heads 0 to {len(norm) - 1}, received {chosen}")
    exponents = [(float(exponent[head]), float(spread[head])) for head in chosen]
    return norm_curves(
        visible, norm[chosen], error[chosen], exponents, chosen, title="Norm of layer 0's outputs"
    )


def random_figure(result: Result) -> go.Figure:
    """The norms of layer 0, or one head's attention from one position or the last."""
    if "head" in result.axes["pattern"]:
        return norm_figure(result)
    last = len(result.values["pattern"]) - 1 if "query" in result.axes["pattern"] else None
    return intrinsic_figure(result, None, None, last)
