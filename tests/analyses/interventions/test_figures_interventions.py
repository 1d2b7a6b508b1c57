"""What an intervention does, as figures."""

import numpy as np
import pytest

from poskernel_core.analyses.interventions import figures as draw
from poskernel_core.common.result import texts_array
from poskernel_core.plotting.layout import quoted
from tests.support.made_results import check_curve, result


def changed(length=5):
    """What changes in a prompt."""
    square = dict.fromkeys(("clean", "changed"), (length, length))
    row = dict.fromkeys(("clean_loss", "changed_loss", "kl"), (length,))
    found = result(
        "intervention",
        square | row | {"previous_mass_change": (2, 3)},
        {
            "clean_probability": np.array([0.001, 0.004, 0.99, 0.002]),
            "changed_probability": np.array([0.0, 0.65, 0.26, 0.03]),
        },
    )
    found.values["difference"] = found.values["changed"] - found.values["clean"]
    found.texts["candidates"] = texts_array(["x", " pirate", " turtle", "x"])
    return found


def test_percent_is_short():
    assert ["99.1 %", "0.042 %", "< 0.01 %"] == [*map(draw.percent, (0.99123, 0.00042, 1e-6))]


def test_next_tokens_are_sorted_by_the_clean_run():
    figure = draw.next_tokens(changed())
    clean, after = figure.data
    np.testing.assert_allclose(clean.x, [99, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(after.x, [26, 65, 3, 0])
    axis = figure.layout.yaxis
    assert (quoted(" turtle"), 4, "reversed") == (
        axis.ticktext[0], len(set(axis.tickvals)), axis.autorange
    )  # fmt: skip


@pytest.mark.parametrize("zoom", [None, (1, 4)])
@pytest.mark.parametrize("name", ["clean", "difference"])
def test_the_pattern_of_the_observed_head(name, zoom):
    found = changed()
    cells, part = draw.patterns(found, name, zoom).data[0], slice(*(zoom or (0, 5)))
    shown = np.tril(found.values[name][part, part])
    np.testing.assert_allclose(np.nan_to_num(cells.z), shown, rtol=1e-6)
    top = np.abs(shown).max()
    assert (cells.zmin, cells.zmax) == pytest.approx((-top, top) if name[0] == "d" else (0, 1))


def test_the_change_of_all_heads():
    found = changed()
    found.values["previous_mass_change"][0, 0] = -2
    cells = draw.mass_changes(found).data[0]
    assert (-2, 2) == (cells.zmin, cells.zmax)


def test_the_loss_by_group():
    loss, error = np.array([3.5, 3.0, 3.2]), np.array([0.3, 0.1, 0.2])
    groups = {"group": np.array([10, 1, 5])}
    found = result("averaging", {}, {"loss": loss, "loss_change": loss}, coordinates=groups)
    found.params["layer"], found.errors["loss_change"] = None, error
    (line,) = (figure := draw.averaging(found)).data
    check_curve(line, [1, 5, 10], [3.0, 3.2, 3.5], [0.1, 0.2, 0.3])
    assert 3.0 == figure.layout.shapes[0].y0
