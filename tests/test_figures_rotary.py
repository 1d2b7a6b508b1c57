"""Figures of rotary heads: hands of clocks, axes of wavelengths and offsets, what each shows."""

import math

import numpy as np
import plotly.graph_objects as go
import pytest

import poskernel_core as pk
from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.rotary import figures as of_rotary
from poskernel_core.analyses.rotary.curves import RADIUS, clocks, offset_curves, over_wavelengths
from tests import builders
from tests.test_rotary_spectrum import CONTEXT, QUERY, SKIP, gathered_of, kernels_of

OFFSETS = (0, 1, 2)


@pytest.fixture(scope="module")
def found(model_dirs):
    """Spectra and kernels of a model of which half of each head is turned."""
    ids = builders.random_ids(4, CONTEXT, seed=31).numpy()
    gathered = gathered_of(model_dirs["gpt_neox"], ids)
    spectrum = pk.analyse("rotary-spectrum", gathered, skip=SKIP)
    kernels = kernels_of(gathered)
    provenance = spectrum.provenance
    return spectrum, type(kernels)(**{**vars(kernels), "provenance": provenance})


def test_hands_turn_with_distance():
    """A pair of 4 tokens turns a quarter each; its shadow is its cosine; the sum is told."""
    figure = clocks(
        np.array([4.0, 8.0]), np.array([0.0, math.pi]), np.array([2.0, 0.5]), OFFSETS,
        [1.5, -0.25, 0.0], title="Clocks",
    )  # fmt: skip
    tips = {
        (round(x), round(y)): (x, y, told)
        for each in figure.data
        if each.mode == "markers"
        for x, y, told in zip(each.x, each.y, each.customdata, strict=True)
    }
    assert 6 == len(tips)
    for row, (wave, phase, size) in enumerate(((4, 0, 2.0), (8, math.pi, 0.5))):
        for column, offset in enumerate(OFFSETS):
            angle = phase + 2 * math.pi * offset / wave
            x, y, told = tips[column, -row]
            assert x == pytest.approx(column + RADIUS * math.cos(angle))
            assert y == pytest.approx(-row + RADIUS * math.sin(angle))
            np.testing.assert_allclose(told, [wave, offset, size * math.cos(angle)], atol=1e-12)
    (sums,) = (each for each in figure.data if each.mode == "text")
    assert ("+1.5", "−0.2", "+0.0") == tuple(sums.text)
    assert ("4", "8", "all: S(D)") == tuple(figure.layout.yaxis.ticktext)


def test_adding_and_taking_are_told_apart():
    """By name and colour: hands to the right, and to the left."""
    figure = clocks(np.array([4.0]), np.zeros(1), np.ones(1), OFFSETS, [0, 0, 0], title="")
    hands = {each.name: each for each in figure.data if each.mode == "markers"}
    assert (hands["adds to the score"].x >= np.round(hands["adds to the score"].x) - 1e-9).all()
    assert [2.0 - RADIUS] == pytest.approx([*hands["takes from the score"].x])
    assert 2 == len({each.marker.color for each in hands.values()})


def test_offsets_on_a_log_axis():
    """Points one to the right, ticks that name the offset, the error around the first alone."""
    curves = {name: (np.arange(60.0), {"color": "#112233"}) for name in ("one", "two")}
    plain = offset_curves(curves, title="", y_title="")
    log = offset_curves(curves, title="", y_title="logit", error=np.ones(60), log_x=True)

    assert 2 == len(plain.data)
    assert 0 == plain.data[0].x[0]
    assert [1, 60] == [log.data[2].x[0], log.data[2].x[-1]]
    assert ("0", "1", "2", "5", "10", "20", "50") == tuple(log.layout.xaxis.ticktext)
    assert (1, 2, 3, 6, 11, 21, 51) == tuple(log.layout.xaxis.tickvals)
    assert [0, 59] == [log.data[2].customdata[0], log.data[2].customdata[-1]]
    assert log.data[2].hovertemplate.startswith("offset %{customdata}: one")
    band = log.data[1]
    assert "tonexty" == band.fill
    assert "logit" == log.layout.xaxis.unifiedhovertitle.text
    np.testing.assert_allclose(band.y - log.data[0].y, 2)


def test_bands_end_where_they_do():
    """A line at each edge that lies among the wavelengths; none beyond them."""
    wave = np.array([6.0, 60.0, 600.0])
    figure = over_wavelengths(wave, {"a": (wave, None)}, (16, 9000), title="", y_title="")
    assert [16] == [shape.x0 for shape in figure.layout.shapes]
    assert "log" == figure.layout.xaxis.type


def test_every_figure_of_a_head(found):
    """Each shows the values of that head over the pairs that are turned, or visible offsets."""
    spectrum, kernels = (each.select(layer=1, head=2) for each in found)
    visible, pairs = QUERY - SKIP + 1, 3

    logit = of_rotary.logit_figure(kernels)
    lines = {each.name: each for each in logit.data if each.name}
    assert {"S(D)", "short wavelengths", "middle wavelengths", "long wavelengths"} == set(lines)
    whole = lines["S(D)"].y
    np.testing.assert_allclose(whole, kernels.values["positional_logit"][:visible])
    parts = sum(lines[name].y for name in lines if name != "S(D)")
    np.testing.assert_allclose(parts, whole, atol=1e-5)

    curve = {each.name: each for each in of_rotary.equivariant_curve(kernels).data if each.name}
    for name, value in (
        ("equivariant kernel", "equivariant_kernel"), ("positional kernel K", "mean_key_kernel"),
        ("observed attention", "observed"),
    ):  # fmt: skip
        np.testing.assert_allclose(curve[name].y, kernels.values[value][:visible])
    rest = {each.name: each for each in of_rotary.without_figure(kernels).data}
    np.testing.assert_allclose(rest["without long ones"].y,
                               kernels.values["without_band"][2, :visible])  # fmt: skip

    amplitudes = {each.name: each for each in of_rotary.amplitudes_figure(spectrum).data}
    assert pairs == len(amplitudes["swing"].y)
    np.testing.assert_allclose(amplitudes["phase"].y, spectrum.values["phase"][:pairs])
    usage = of_rotary.usage_figure(spectrum).data
    assert [pytest.approx(1)] * 3 == [np.nansum(each.y) for each in usage]
    shares = {each.name: each for each in of_rotary.shares_figure(spectrum).data}
    level = float(spectrum.values["mean_share_keys"])
    assert [level, level] == pytest.approx([*shares["keys, all pairs"].y])

    hands = [each for each in of_rotary.clocks_figure(spectrum, kernels).data
             if each.mode == "markers"]  # fmt: skip
    assert pairs * len(of_rotary.CLOCK_OFFSETS[:-1]) == sum(len(each.x) for each in hands)


def test_any_result_has_a_figure(found):
    """What is written as HTML: one head's, and that of all heads."""
    for result in found:
        for shown in (result, result.select(layer=0, head=1)):
            figure = figure_of(shown)
            assert isinstance(figure, go.Figure)
            assert figure.data
