"""Draw any result with the figure of its analysis, as ``show --html`` does."""

import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes


def figure_of(result: Result) -> go.Figure:
    """Return the figure of a result's analysis, or else curves by the axes of its main value.

    Of a part (``result.only``) that has none of its own, it is the curves too.
    """
    question = find(result.analysis)
    if not question.figure:
        return by_axes(result)
    try:
        figure: go.Figure = question.beside("figures", question.figure)(result)
    except (KeyError, BadRequest):
        if {value.name for value in question.values if not value.optional} <= {*result.values}:
            raise
        return by_axes(result)
    return figure
