"""Every part of every answer has a picture."""

import plotly.graph_objects as go
import pytest

from poskernel_core import analyses
from poskernel_core.analyses.views import figure_of
from tests.analyses.test_figures import made


@pytest.mark.parametrize("name", analyses.ANALYSES)
def test_every_value_alone_is_drawn(name):
    result = made(name)
    for value in result.values:
        assert isinstance(figure_of(result.only(value)), go.Figure), value
