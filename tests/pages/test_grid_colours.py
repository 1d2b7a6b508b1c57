"""The colours of the layer x head grid, and what it sends to the browser."""

import numpy as np
import pytest

from poskernel_core.plotting.grid_cells import grid_data
from poskernel_core.plotting.palette import NO_VALUE, SCALE, log_position

COLOURS = [[SCALE[0], SCALE[5], SCALE[9]], [SCALE[9], SCALE[0], SCALE[5]]]
LABELS = [[f"L{layer}H{head}: text" for head in range(3)] for layer in range(2)]
MARKS = [["x", "", "y"], ["", "z", ""]]
CLEAR = [[False] * 3] * 2


def test_log_position_of_the_ends_the_middle_and_beyond() -> None:
    got = log_position(np.array([0.1, 1, 10, 100, 1000, np.nan]), 1, 100)
    np.testing.assert_allclose(got, [0, 0, 0.5, 1, 1, np.nan], atol=1e-12)


def test_log_position_rejects_an_empty_range() -> None:
    with pytest.raises(ValueError, match="low=3, high=3"):
        log_position(np.ones(2), 3, 3)


def test_cells_are_layers_down_and_heads_across() -> None:
    data = grid_data(COLOURS, LABELS, MARKS, CLEAR, None)
    assert [["L0H0", "L0H1", "L0H2"], ["L1H0", "L1H1", "L1H2"]] == [
        [cell["name"] for cell in row] for row in data["rows"]
    ]
    assert ["H0", "H1", "H2"] == data["headers"]
    assert (SCALE[0], "L1H1: text", "z") == tuple(
        data["rows"][1][1][name] for name in ("colour", "label", "mark")
    )


def test_cells_without_a_value_are_missing() -> None:
    colours = [[SCALE[0], NO_VALUE, SCALE[1]], [NO_VALUE] * 3]
    data = grid_data(colours, LABELS, MARKS, CLEAR, None)
    missing = [[cell["missing"] for cell in row] for row in data["rows"]]
    assert [[False, True, False], [True] * 3] == missing


def test_sorted_columns_move_cells_and_number_the_places() -> None:
    data = grid_data(COLOURS, LABELS, MARKS, CLEAR, [[2, 0, 1], [1, 2, 0]])
    assert ["L0H2", "L0H0", "L0H1"] == [cell["name"] for cell in data["rows"][0]]
    assert [SCALE[9], SCALE[0], SCALE[5]] == [cell["colour"] for cell in data["rows"][0]]
    assert ["1.", "2.", "3."] == data["headers"]
    assert "rank" == data["corner"]


def test_cells_with_curves_have_ink():
    data = grid_data(COLOURS, LABELS, [[""] * 3] * 2, CLEAR, None, kernels=True)

    assert data["kernels"]
    assert all(cell["ink"] for row in data["rows"] for cell in row)
    assert not grid_data(COLOURS, LABELS, MARKS, CLEAR, None)["kernels"]
