"""From numbers to colours and a legend: every scale at its ends, in between, beyond, and at NaN."""

import base64
import io

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image
from plotly.colors import hex_to_rgb

from poskernel_core.plotting.grid_cells import grid_data
from poskernel_core.plotting.maps import as_picture, on_dark
from poskernel_core.plotting.palette import (
    CATEGORICAL,
    DIVERGING,
    NIGHT,
    NO_VALUE,
    SCALE,
    log_position,
    scale_hex,
    scale_rgb,
)
from poskernel_core.plotting.shades import Shade, categories, diverging, linear, logarithmic

STEPS = 121
NAMES = ("near", "far", "neither")


def colours(shade: Shade) -> list[str]:
    return shade.colours[0]


def ticks(shade: Shade) -> dict[int, str]:
    return {step: text for step, (_, text) in enumerate(shade.legend) if text}


def luminance(rgb: np.ndarray) -> np.ndarray:
    """Relative luminance of colours [..., 3] in 0 to 255."""
    part = np.asarray(rgb) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize(
    ("scale", "page", "way"), [(DIVERGING, "#ffffff", 1), (NIGHT, "#11181e", -1)]
)
def test_zero_of_the_diverging_scale_is_the_page(scale, page, way) -> None:
    """Both sides leave it steadily, to a contrast of 3; in print, below 0 is darker than above."""
    steps = luminance(scale_rgb(np.linspace(0, 1, 51), scale))
    assert page == scale_hex(np.array([[0.5]]), scale)[0][0]
    assert (way * np.diff(steps[:26]) > 0).all()
    assert (way * np.diff(steps[25:]) < 0).all()
    for end in (steps[0], steps[-1]):
        light, dark = max(end, steps[25]), min(end, steps[25])
        assert (light + 0.05) / (dark + 0.05) > 3
    assert steps[0] < steps[-1]


def test_a_dark_page_has_colours_of_its_own() -> None:
    shade = diverging(np.array([[-1.0, 0.0]]))
    assert [[NIGHT[0].lower(), NIGHT[3].lower()]] == shade.on(True).colours
    assert shade.on(False) is shade
    assert linear(np.ones((1, 1))).on(True) == linear(np.ones((1, 1)))
    figure = on_dark(as_picture(np.array([[0.0, 0.5], [1.0, np.nan]]), DIVERGING, hover=""))
    picture, bar = figure.data
    assert bar.colorscale[3] == (0.5, NIGHT[3])
    image = Image.open(io.BytesIO(base64.b64decode(picture.source.partition(",")[2])))
    seen = [[image.convert("RGBA").getpixel((x, y)) for x in (0, 1)] for y in (0, 1)]
    for (y, x), place in {(0, 0): 0, (0, 1): 3, (1, 0): 6}.items():
        np.testing.assert_allclose(seen[y][x][:3], hex_to_rgb(NIGHT[place]), atol=2)
    assert 0 == seen[1][1][3]
    uneven = [*zip(np.linspace(0, 1, len(DIVERGING)), DIVERGING, strict=True)]
    points = go.Scatter(marker={"color": [1.0], "colorscale": uneven})
    assert NIGHT[0] == on_dark(go.Figure(points)).data[0].marker.colorscale[0][1]
    other = go.Figure(go.Heatmap(z=[[1]], colorscale=SCALE))
    assert other == on_dark(go.Figure(other))


def test_linear() -> None:
    """From zero to the largest, or clipped at a given end; the legend has the same colours."""
    shade = linear(np.array([[0.0, 2.0, 4.0]]))
    assert [SCALE[0], shade.legend[STEPS // 2][0], SCALE[-1]] == colours(shade)
    assert {0: "0", 60: "2", 120: "4"} == ticks(shade)
    shade = linear(np.array([[-1.0, 0.0, 1.0, 3.0]]), 1.0)
    assert [SCALE[0], SCALE[0], SCALE[-1], SCALE[-1]] == colours(shade)
    for value, expected in ((0.0, SCALE[0]), (np.nan, NO_VALUE)):
        assert [expected] * 2 == colours(linear(np.full((1, 2), value)))


def test_ticks_of_the_log_scale_lie_on_it() -> None:
    shade = logarithmic(np.array([[1.0, 10.0, 100.0]]), 1.0, 100.0)
    assert {0: "1", 60: "10", 120: "100"} == ticks(shade)
    assert [SCALE[0], shade.legend[60][0], SCALE[-1]] == colours(shade)
    own = logarithmic(np.array([[0.2, 0.5, 1.0, 2.0, 4.0, np.inf]]))
    assert (SCALE[0], SCALE[-1]) == (colours(own)[0], colours(own)[4])
    assert ["0.2", "0.5", "1", "2"] == list(ticks(own).values())


def test_the_log_scale_clips_and_leaves_out() -> None:
    """0 is the lower end; negative and unknown numbers have no colour; beyond it is clipped."""
    values = np.array([[0.01, 0.0, 1000.0, -1.0, np.nan]])
    shown = [SCALE[0], SCALE[0], SCALE[-1], NO_VALUE, NO_VALUE]
    assert shown == colours(logarithmic(values, 1.0, 100.0))
    assert [NO_VALUE] * 2 == colours(logarithmic(np.full((1, 2), np.nan)))
    assert [SCALE[0]] == colours(logarithmic(np.array([[3.0]])))


def test_diverging_has_its_middle_at_zero() -> None:
    shade = diverging(np.array([[-0.5, 0.0, 0.25, 0.5, np.nan]]))
    low, zero, _, high, missing = colours(shade)
    ends = [
        DIVERGING[0].lower(),
        DIVERGING[len(DIVERGING) // 2].lower(),
        DIVERGING[-1].lower(),
        NO_VALUE,
    ]
    assert ends == [low, zero, high, missing]
    assert {0: "−0.5", 60: "0", 120: "0.5"} == ticks(shade)
    assert [zero] == colours(diverging(np.zeros((1, 1))))
    assert [zero, high] == colours(diverging(np.array([[0.0, 0.5]])))


def test_categories_have_the_colours_of_their_names() -> None:
    """A name stands in the middle of its colour's part of the legend."""
    shade = categories(np.array([[2.0, 0.0, -1.0, 1.0]]), NAMES)
    assert [CATEGORICAL[2], CATEGORICAL[0], NO_VALUE, CATEGORICAL[1]] == colours(shade)
    for at, (step, text) in enumerate(ticks(shade).items()):
        same = [place for place, (each, _) in enumerate(shade.legend) if each == CATEGORICAL[at]]
        assert (NAMES[at], STEPS // 3) == (text, len(same))
        assert abs(step - np.mean(same)) <= 0.5
    own = categories(np.array([[1, 0]]), NAMES[:2], ("#010203", "#fefefe"))
    assert ["#fefefe", "#010203"] == colours(own)
    with pytest.raises(ValueError, match="zip"):
        categories(np.zeros((1, 1)), [f"{each}" for each in range(len(CATEGORICAL) + 1)])


def test_cells_are_layers_down_and_heads_across() -> None:
    """Those without a value are missing; other orders: `test_exports.py`."""
    colours = [[SCALE[0], NO_VALUE, SCALE[9]], [SCALE[9], SCALE[0], SCALE[5]]]
    labels = [[f"L{layer}H{head}: text" for head in range(3)] for layer in range(2)]
    given = colours, labels, [["x", "", "y"], ["", "z", ""]], [[False] * 3] * 2, None
    data = grid_data(*given)
    assert (["H0", "H1", "H2"], False) == (data["headers"], data["kernels"])
    assert [False, True, False] + [False] * 3 == [c["missing"] for row in data["rows"] for c in row]
    cell = data["rows"][1][1]
    assert ("L1H1", SCALE[0], "L1H1: text", "z") == tuple(
        cell[name] for name in ("name", "colour", "label", "mark")
    )
    curves = grid_data(*given, kernels=True)
    assert curves["kernels"]
    assert all(cell["ink"] for row in curves["rows"] for cell in row)


def test_log_position_rejects_an_empty_range() -> None:
    with pytest.raises(ValueError, match="low=3, high=3"):
        log_position(np.ones(2), 3, 3)


@pytest.mark.parametrize("shading", [linear, logarithmic])
def test_larger_is_lighter(shading) -> None:
    """Colours follow the order of the numbers, also in a grey print; the legend's as well."""
    shade = shading(np.sort(np.random.default_rng(2).lognormal(size=40)).reshape(4, 10))
    cells = [colour for row in shade.colours for colour in row]
    for each in (cells, [colour for colour, _ in shade.legend]):
        rgb = np.array([hex_to_rgb(colour) for colour in each])
        assert np.diff(rgb @ [0.2126, 0.7152, 0.0722]).min() > -1  # colours are whole numbers
