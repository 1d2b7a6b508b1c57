"""Draw any result with the figure of its analysis, as ``show --html`` does."""

import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes


def figure_of(result: Result) -> go.Figure:
    """Return the figure of a result's analysis, or else curves by the axes of its main value."""
    question = find(result.analysis)
    if not question.figure:
        return by_axes(result)
    figure: go.Figure = question.beside("figures", question.figure)(result)
    return figure
