"""Any result -> the figure that its analysis names: what ``show --html`` writes."""

from importlib import import_module

import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.common.result import Result
from poskernel_core.figures.by_axes import by_axes


def figure_of(result: Result) -> go.Figure:
    """The figure of any result: its analysis' own, else curves by the axes of its main value.

    Raises:
        UnknownAnalysis: a result of no analysis of ours.
    """
    named = find(result.analysis).figure
    if not named:
        return by_axes(result)
    module, name = named.split(":")
    figure: go.Figure = getattr(import_module(module), name)(result)
    return figure
