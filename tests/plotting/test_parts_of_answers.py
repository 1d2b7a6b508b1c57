"""Every part of every answer has a picture."""

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core import analyses
from poskernel_core.analyses.views import figure_of
from poskernel_core.plotting.parts import query_of
from tests.analyses.test_figures import made
from tests.support import made_results


@pytest.mark.parametrize("name", analyses.ANALYSES)
def test_every_value_alone_is_drawn(name):
    result = made(name)
    for value in result.values:
        assert isinstance(figure_of(result.only(value)), go.Figure), value


def test_a_row_whose_last_key_gets_nothing_is_titled_by_its_query():
    result = made_results.answer("position-vs-token").select(layer=1, head=2, query=5)
    row = np.where(np.arange(11) < 5, 0.2, 0.0)
    assert 5 == query_of(result, row)
    assert 4 == query_of(made_results.answer("position-vs-token"), row)
