"""Any result -> the figure that its analysis names: what ``show --html`` writes."""

import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes


def figure_of(result: Result) -> go.Figure:
    """The figure of any result: its analysis' own, else curves by the axes of its main value.

    Raises:
        UnknownAnalysis: a result of no analysis of ours.
    """
    question = find(result.analysis)
    if not question.figure:
        return by_axes(result)
    figure: go.Figure = question.beside("figures", question.figure)(result)
    return figure
