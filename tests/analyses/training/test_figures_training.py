"""The figures of heads over training, on made results."""

from typing import Any

import numpy as np
import pytest

from pages.over_training.sections import emergence_table
from poskernel_core.analyses.training import figures as draw
from poskernel_core.common.result import Result
from tests.support.made_results import band_of, check_curve, named, result

STEPS, LAYERS, HEADS = (0, 1, 4, 16, 64), 2, 3


def made(title: str = "induction score", kinds: tuple[str, ...] = (), **more: Any) -> Result:
    """A result of a measure over training: head L1H2 rises from 0 to 0.8 between steps 4 and 16."""
    value = np.full((len(STEPS), LAYERS, HEADS), 0.1)
    value[:, 1, 2] = [0, 0, 0.2, 0.6, 0.8]
    value[:, 0, 1] = [0.1, 0.1, 0.1, 0.3, 0.4]
    if kinds:
        value = np.zeros(value.shape, dtype=int)
        value[2:, 0, 0], value[4, 1] = 1, 2
    counts = [(value == code).sum(axis=(1, 2)) for code in range(len(kinds))]
    values = {
        "measure": value,
        "change": (value[-1] - value[0]).astype(float),
        "emergence": np.full((LAYERS, HEADS), 8.0),
        "emergence_earliest": np.full((LAYERS, HEADS), 4.0),
        "emergence_latest": np.full((LAYERS, HEADS), 16.0),
        "count": np.array(counts or np.zeros((0, len(STEPS))), dtype=int).T,
        "tokens": 2048.0 * np.array(STEPS),
    }
    steps = {"step": np.array(STEPS)}
    labels = {"measure": kinds} if kinds else {}
    found = result("over-training", {}, values | more, labels=labels, coordinates=steps)
    found.params.update(measure=title, query=10, skip=4)
    if not kinds:
        found.errors["measure"] = value / 10
    return found


def kernels() -> Result:
    """A result of one head's kernel over training, uniform over 13 keys."""
    values = {"kernel": np.full((len(STEPS), 13), 1 / 13), "etc": np.full(len(STEPS), 13.0)}
    values["kernel"][3] = np.eye(13)[7]
    steps = {"step": np.array(STEPS)}
    found = result("kernel-over-training", {}, values, coordinates=steps)
    found.params.update(head="L1H2", query=10, skip=4)
    return found


@pytest.mark.parametrize(("over", "unit"), [("steps", 1), ("tokens", 2048)])
def test_where_checkpoints_stand(over: str, unit: int) -> None:
    """On a log axis; step 0 has a place of its own, a factor of two before the next, and its 0."""
    axis = draw.axis_of(made(), over)

    assert [unit * place for place in (0.5, 1, 4, 16, 64)] == axis.at.tolist()
    figure = draw.curves_figure(made(), ["L1H2"], over)
    ticks = dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))
    assert unit * 0.5 == ticks["0"]


def test_tokens_that_are_not_known() -> None:
    with pytest.raises(ValueError, match="not known"):
        draw.axis_of(made(tokens=np.full(len(STEPS), np.nan)), "tokens")


def test_curves_with_bands_and_emergence() -> None:
    found = made()
    figure = draw.curves_figure(found, ["L1H2", "L0H1"])
    curve, mark = named(figure, "L1H2"), named(figure, "L1H2 emerges")

    mean, error = (part["measure"][:, 1, 2] for part in (found.values, found.errors))
    check_curve(curve, y=mean, error=error)
    np.testing.assert_allclose(1.1 * mean, band_of(figure, "L1H2").y)
    assert ([4, 8, 16], [0.4] * 3) == ([*mark.x], [*mark.y])
    tokens = named(draw.curves_figure(found, ["L1H2"], "tokens"), "L1H2 emerges")
    assert [4 * 2048, 8 * 2048, 16 * 2048] == [*tokens.x]


def test_an_emergence_from_the_first_steps_on() -> None:
    """Between steps 0 and 1 it stands where step 0 does; at step 0 there is no mark."""
    ends = {"emergence": 1.0, "emergence_earliest": 0.0, "emergence_latest": 1.0}
    full = {name: np.full((LAYERS, HEADS), value) for name, value in ends.items()}
    full["emergence"][0, 0] = np.nan
    for each in full.values():
        each[0, 1] = STEPS[0]
    figure = draw.curves_figure(made(**full), ["L1H2", "L0H0", "L0H1"])

    assert [0.5, 1, 1] == [*named(figure, "L1H2 emerges").x]
    assert not {"L0H0 emerges", "L0H1 emerges"} & {trace.name for trace in figure.data}


def test_the_table_of_emergence() -> None:
    measure = np.full((len(STEPS), LAYERS, HEADS), 0.5)
    measure[-1, 0] = 0.3, 0.0, 0.9
    emergence = np.array([[np.nan, np.nan, 8.0], [4.0, 2.0, 1.0]])
    change = measure[-1] - measure[0]
    shown = made(measure=measure, emergence=emergence, change=change)
    rows = [line.split("|") for line in emergence_table(shown).to_string(delimiter="|").split("\n")]

    places = rows[0].index("head"), rows[0].index("emergence (step)")
    assert [
        ("L1H2", "1"), ("L1H1", "2"), ("L1H0", "4"), ("L0H2", "8"), ("L0H0", "fell"),
        ("L0H1", "none"),
    ] == [tuple(row[place] for place in places) for row in rows[1:] if len(row) > 1]  # fmt: skip


def test_most_changed_heads() -> None:
    change = np.array([[0.1, -0.9, 0.2], [np.nan, 0.0, 0.5]])

    assert ["L0H1", "L1H2", "L0H2", "L0H0"] == draw.most_changed(made(change=change), 4)
    assert "L1H0" == draw.most_changed(made(change=change), 6)[-1]


def test_grids_of_all_checkpoints() -> None:
    found = made()
    figure = draw.grids_figure(found, "L1H2", log=False, unit="share")
    grid, steps = figure.data[0], figure.data[1]

    cells = np.array(grid.z, dtype=float)
    expected = sorted(found.values["measure"].ravel() / 0.8)
    np.testing.assert_allclose(expected, sorted(cells[np.isfinite(cells)]))
    assert 0.8 == pytest.approx(float(grid.colorbar.ticktext[-1]))
    assert ["0", "1", "4", "16", "64"] == [*steps.text]
    assert len(STEPS) == len(figure.layout.shapes)
    assert 2 == len(figure.data)  # nothing is missing
    for frame, value in zip(figure.layout.shapes, found.values["measure"][:, 1, 2], strict=True):
        row, column = round((frame.y0 + frame.y1) / 2), round((frame.x0 + frame.x1) / 2)
        assert value / 0.8 == pytest.approx(cells[row, column])


def test_a_missing_cell_of_a_grid_is_hatched() -> None:
    found = made()
    found.values["measure"][2, 1, 0] = np.nan
    grid, hatched = draw.grids_figure(found, "L1H2", log=False, unit="share").data[:2]

    assert ["<b>L1H0</b> at step 4"] == [*hatched.customdata]
    row, column = round(hatched.base[0] + 0.5), hatched.x[0]
    assert "nan" in grid.customdata[row][column]
    assert hatched.marker.pattern.shape


@pytest.mark.parametrize(("log", "shift"), [(True, 0.0), (False, -0.5)])
def test_scales_of_grids(log: bool, shift: float) -> None:
    """A log scale from the smallest positive number; a measure below 0 diverges from it."""
    found = made(measure=made().values["measure"] + shift)
    grid = draw.grids_figure(found, "L0H0", log=log, unit="share").data[0]

    cells, values = (
        np.sort(np.unique(np.round(each, 9))) for each in (grid.z, found.values["measure"])
    )
    low, high = (np.log(0.1), np.log(0.8)) if log else (-0.5, 0.5)
    placed = np.log(np.maximum(values, 0.1)) if log else values
    expected = np.unique(np.round((placed - low) / (high - low), 9))
    np.testing.assert_allclose(cells[np.isfinite(cells)], expected, atol=1e-8)


def test_kinds() -> None:
    kinds = ("local", "slow decay", "uniform")
    found = made("kind of kernel", kinds)
    figure = draw.over_training_figure(found)

    assert [*kinds] == [trace.name for trace in figure.data]
    assert [LAYERS * HEADS] * len(STEPS) == np.sum([t.y for t in figure.data], axis=0).tolist()
    assert [0, 0, 1, 1, 1] == [*named(figure, "slow decay").y]


def test_the_figure_of_a_result() -> None:
    assert "L1H2" in {trace.name for trace in draw.over_training_figure(made()).data}
    one = draw.over_training_figure(made().select(layer=0, head=1))
    np.testing.assert_array_equal([0.1, 0.1, 0.1, 0.3, 0.4], named(one, "L0H1").y)


def test_a_kernel_over_training() -> None:
    figure = draw.kernel_over_training_figure(kernels())
    values = np.array(figure.data[0].customdata)[..., 0]

    assert (len(STEPS), 7) == values.shape
    assert 1 == values[3, 10 - 7]
    assert ["0", "1", "4", "16", "64"] == [*figure.data[0].y]


def test_induction_beside_the_sink() -> None:
    one, other = (made().select(layer=1, head=head) for head in (2, 0))
    figure = draw.induction_and_sink_figure(one, other)

    for name, found in (("induction score", one), ("attention to the first token", other)):
        check_curve(named(figure, name), y=found.values["measure"])
