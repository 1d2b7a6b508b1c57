"""What an intervention does, as figures."""

import numpy as np
import pytest

from poskernel_core.analyses.interventions import figures as draw
from poskernel_core.common.result import texts_array
from poskernel_core.plotting.layout import quoted
from tests.support.made_results import check_curve, named, result


def changed(length=5):
    """What changes in a prompt."""
    square = (length, length)
    found = result(
        "intervention",
        {
            "clean": square,
            "changed": square,
            "clean_loss": (length,),
            "changed_loss": (length,),
            "kl": (length,),
            "previous_mass_change": (2, 3),
        },
        {
            "clean_probability": np.array([0.001, 0.004, 0.99, 0.002]),
            "changed_probability": np.array([0.0, 0.65, 0.26, 0.03]),
        },
    )
    found.values["difference"] = found.values["changed"] - found.values["clean"]
    found.texts["candidates"] = texts_array(["x", " pirate", " turtle", "x"])
    return found


@pytest.mark.parametrize(
    ("probability", "text"), [(0.99123, "99.1 %"), (0.00042, "0.042 %"), (1e-6, "< 0.01 %")]
)
def test_percent_is_short(probability, text):
    assert text == draw.percent(probability)


def test_next_tokens_are_sorted_by_the_clean_run():
    figure = draw.bars_figure(changed())
    clean, after = figure.data

    np.testing.assert_allclose(clean.x, [99, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(after.x, [26, 65, 3, 0])
    axis = figure.layout.yaxis
    assert quoted(" turtle") == axis.ticktext[0]
    assert (4, "reversed") == (len(set(axis.tickvals)), axis.autorange)


def test_along_the_prompt():
    found = changed(14)
    losses = draw.losses_figure(found)
    for name in ("clean", "changed"):
        check_curve(named(losses, name), np.arange(14), found.values[f"{name}_loss"])
    check_curve(draw.kl_figure(found).data[0], y=found.values["kl"])


@pytest.mark.parametrize("zoom", [None, (1, 4)])
@pytest.mark.parametrize("name", ["clean", "difference"])
def test_the_pattern_of_the_observed_head(name, zoom):
    found = changed()
    cells = draw.pattern_figure(found, name, zoom).data[0]
    part = slice(*(zoom or (0, 5)))
    shown = found.values[name][part, part]

    np.testing.assert_allclose(np.where(np.tri(len(shown)) > 0, shown, np.nan), cells.z, rtol=1e-6)
    top = np.abs(shown[np.tril_indices(len(shown))]).max()
    assert pytest.approx((-top, top) if name == "difference" else (0, 1)) == (
        cells.zmin, cells.zmax
    )  # fmt: skip


def test_the_change_of_all_heads():
    found = changed()
    change = found.values["previous_mass_change"]
    change[0, 0] = -0.9
    cells = draw.mass_figure(found).data[0]

    np.testing.assert_array_equal(change, cells.z)
    assert (-change[change > 0].max() > -1, -cells.zmin) == (True, cells.zmax)


def test_the_loss_by_group():
    loss, error = np.array([3.5, 3.0, 3.2]), np.array([0.3, 0.1, 0.2])
    groups = {"group": np.array([10, 1, 5])}
    found = result("averaging", {}, {"loss": loss, "loss_change": loss}, coordinates=groups)
    found.params["layer"], found.errors["loss_change"] = None, error
    (line,) = (figure := draw.averaging_figure(found)).data

    check_curve(line, [1, 5, 10], [3.0, 3.2, 3.5], [0.1, 0.2, 0.3])
    assert 3.0 == figure.layout.shapes[0].y0
    found.coordinates["group"][1] = 2
    assert not draw.averaging_figure(found).layout.shapes
