"""The figures of heads over training, on made results."""

from typing import Any

import numpy as np
import pytest

from pages.over_training.sections import emergence_table
from poskernel_core.analyses.training import figures as draw
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from tests.support.made_results import check_curve, named, result

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


@pytest.mark.parametrize(("over", "unit"), [("steps", 1), ("tokens", 2048)])
def test_where_checkpoints_stand(over: str, unit: int) -> None:
    """On a log axis; step 0 has a place of its own, a factor of two before the next, and its 0."""
    assert [unit * place for place in (0.5, 1, 4, 16, 64)] == draw.axis_of(made(), over).at.tolist()
    axis = draw.curves(made(), ["L1H2"], over).layout.xaxis
    assert unit * 0.5 == axis.tickvals[axis.ticktext.index("0")]


def test_tokens_that_are_not_known() -> None:
    with pytest.raises(ValueError, match="not known"):
        draw.axis_of(made(tokens=np.full(len(STEPS), np.nan)), "tokens")


def test_two_runs_on_the_same_axes() -> None:
    """They span both; a head that one of the models lacks is left out of its figure alone."""
    small, large = made(), made()
    large.values["measure"] *= 3
    large.errors["measure"] = np.full(large.values["measure"].shape, 0.1)
    large.coordinates["step"] = 10 * small.coordinates["step"]
    heads = ["L1H2", "L7H7"]
    one, other = (
        draw.curves(mine, heads, beside=theirs) for mine, theirs in ((small, large), (large, small))
    )
    for figure in (one, other):
        least, most = np.log10([0.5, 640])
        room = 0.05 * (most - least)
        np.testing.assert_allclose([least - room, most + room], figure.layout.xaxis.range)
        np.testing.assert_allclose([-0.1 - 0.13, 2.5 + 0.13], figure.layout.yaxis.range)
        assert {"L1H2"} == {each.legendgroup for each in figure.data if each.legendgroup}


def test_emergence() -> None:
    found = made()
    figure = draw.curves(found, ["L1H2", "L0H1"])
    check_curve(named(figure, "L1H2 emerges"), [4, 8, 16], [0.4] * 3)
    tokens = draw.curves(found, ["L1H2"], "tokens")
    check_curve(named(tokens, "L1H2 emerges"), [4 * 2048, 8 * 2048, 16 * 2048])


def test_an_emergence_from_the_first_steps_on() -> None:
    """Between steps 0 and 1 it stands where step 0 does; at step 0 there is no mark."""
    ends = {"emergence": 1.0, "emergence_earliest": 0.0, "emergence_latest": 1.0}
    full = {name: np.full((LAYERS, HEADS), value) for name, value in ends.items()}
    full["emergence"][0, 0] = np.nan
    for each in full.values():
        each[0, 1] = STEPS[0]
    figure = draw.curves(made(**full), ["L1H2", "L0H0", "L0H1"])
    check_curve(named(figure, "L1H2 emerges"), [0.5, 1, 1])
    assert not {"L0H0 emerges", "L0H1 emerges"} & {trace.name for trace in figure.data}


def test_the_table_of_emergence() -> None:
    measure = np.full((len(STEPS), LAYERS, HEADS), 0.5)
    measure[-1, 0] = 0.3, 0.0, 0.9
    emergence = np.array([[np.nan, np.nan, 8.0], [4.0, 2.0, 1.0]])
    shown = made(measure=measure, emergence=emergence, change=measure[-1] - measure[0])
    rows = [line.split("|") for line in emergence_table(shown).to_string(delimiter="|").split("\n")]
    places = rows[0].index("head"), rows[0].index("emergence (step)")
    assert "L1H2 1, L1H1 2, L1H0 4, L0H2 8, L0H0 fell, L0H1 none" == ", ".join(
        " ".join(row[place] for place in places) for row in rows[1:] if len(row) > 1
    )


def test_most_changed_heads() -> None:
    change = np.array([[0.1, -0.9, 0.2], [np.nan, 0.0, 0.5]])
    expected = ["L0H1", "L1H2", "L0H2", "L0H0", "L1H1", "L1H0"]
    assert expected == draw.most_changed(made(change=change), 6)


def test_grids_of_all_checkpoints() -> None:
    """A frame at the chosen head's cell in each grid; a missing cell is hatched."""
    found = made()
    figure = draw.grids(found, "L1H2", log=False, unit="share")
    grid, steps = figure.data
    cells = np.array(grid.z, dtype=float)
    expected = sorted(found.values["measure"].ravel() / 0.8)
    np.testing.assert_allclose(expected, sorted(cells[np.isfinite(cells)]))
    assert ["0", "1", "4", "16", "64"] == [*steps.text]
    for frame, value in zip(figure.layout.shapes, found.values["measure"][:, 1, 2], strict=True):
        row, column = round((frame.y0 + frame.y1) / 2), round((frame.x0 + frame.x1) / 2)
        assert value / 0.8 == pytest.approx(cells[row, column])
    found.values["measure"][2, 1, 0] = np.nan
    grid, hatched = draw.grids(found, "L1H2", log=False, unit="share").data[:2]
    assert ["<b>L1H0</b> at step 4"] == [*hatched.customdata]
    assert "nan" in grid.customdata[round(hatched.base[0] + 0.5)][hatched.x[0]]


@pytest.mark.parametrize(("log", "shift"), [(True, 0.0), (False, -0.5)])
def test_scales_of_grids(log: bool, shift: float) -> None:
    """A log scale from the smallest positive number; a measure below 0 diverges from it."""
    found = made(measure=made().values["measure"] + shift)
    cells = draw.grids(found, "L0H0", log=log, unit="share").data[0].z.ravel()
    low, high = (np.log(0.1), np.log(0.8)) if log else (-0.5, 0.5)
    values = found.values["measure"].ravel()
    placed = np.log(np.maximum(values, 0.1)) if log else values
    expected = np.sort((placed - low) / (high - low))
    np.testing.assert_allclose(np.sort(cells[np.isfinite(cells)]), expected, atol=1e-8)


def test_kinds() -> None:
    kinds = ("local", "slow decay", "uniform")
    figure = figure_of(made("kind of kernel", kinds))
    drawn = {trace.name: [*trace.y] for trace in figure.data}
    assert {"local": [6, 6, 5, 5, 2], "slow decay": [0, 0, 1, 1, 1],
            "uniform": [0, 0, 0, 0, 3]} == drawn  # fmt: skip


def test_induction_beside_the_sink() -> None:
    found = made().select(layer=0, head=1)
    other = made().select(layer=1, head=2)
    figure = draw.induction_and_sink(found, other)
    check_curve(named(figure, "induction score"), y=found.values["measure"])
    check_curve(named(figure, "attention to the first token"), y=other.values["measure"])


def test_a_kernel_over_training() -> None:
    """Uniform over 13 keys, but for one step."""
    values = {"kernel": np.full((len(STEPS), 13), 1 / 13), "etc": np.full(len(STEPS), 13.0)}
    values["kernel"][3] = np.eye(13)[7]
    steps = {"step": np.array(STEPS)}
    found = result("kernel-over-training", {}, values, coordinates=steps)
    found.params.update(head="L1H2", query=10, skip=4)
    cells = draw.kernels(found).data[0]
    shown = values["kernel"][:, 10:3:-1]
    np.testing.assert_allclose(np.array(cells.customdata)[..., 0], shown)
    assert ["0", "1", "4", "16", "64"] == [*cells.y]
