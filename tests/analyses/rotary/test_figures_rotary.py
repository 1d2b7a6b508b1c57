"""Figures of rotary heads: hands of clocks, axes of wavelengths and offsets, what each shows."""

import math
from dataclasses import replace

import numpy as np
import pytest

from poskernel_core.analyses.rotary.clocks import RADIUS, clocks_figure
from poskernel_core.analyses.views import figure_of, finding_of
from tests.analyses.rotary.test_rotary_spectrum import CONTEXT, QUERY, SKIP, gathered_of, kernels_of
from tests.support import builders
from tests.support.made_findings import made
from tests.support.made_results import result
from tests.support.raw import analyse


@pytest.fixture(scope="module")
def found(model_dirs):
    """Spectra and kernels of a model of which half of each head is turned."""
    ids = builders.random_ids(4, CONTEXT, seed=31).numpy()
    gathered = gathered_of(model_dirs["gpt_neox"], ids)
    spectrum = analyse("rotary-spectrum", gathered, skip=SKIP)
    kernels = kernels_of(gathered)
    provenance = spectrum.provenance
    return spectrum, type(kernels)(**{**vars(kernels), "provenance": provenance})


def pairs(wavelength, phase=0.0, amplitude=1.0, **params):
    """One head's pairs."""
    shape, names = (1, 1, len(wavelength)), ("amplitude", "swing", "phase", "query_share")
    found = result(
        "rotary-spectrum",
        dict.fromkeys((*names, "key_share"), shape)
        | dict.fromkeys(("mean_share_queries", "mean_share_keys"), (1, 1)),
        {"wavelength": np.array(wavelength)[None]},
    )
    found.params.update(params)
    found.values["phase"][0, 0], found.values["amplitude"][0, 0] = phase, amplitude
    return found.select(layer=0, head=0)


def kernel(logit, bands=3):
    """One head's logit and kernels; offsets beyond the logit are not seen."""
    shape = (1, 1, len(logit))
    names = ("equivariant_kernel", "mean_key_kernel", "observed")
    rows = dict.fromkeys(("band_logit", "without_band"), (1, 1, bands, len(logit)))
    found = result("equivariant-kernel", dict.fromkeys((*names, "positional_logit"), shape) | rows)
    found.values["positional_logit"][0, 0] = logit
    return found.select(layer=0, head=0)


def shares_of(head):
    """The figure of its mean shares."""
    both = ("query_share", "key_share", "mean_share_queries", "mean_share_keys")
    return figure_of(head.only("wavelength", *both))


def test_hands_turn_with_distance():
    """A pair of 4 tokens turns a quarter each; its shadow is its cosine; the sum is told."""
    spectrum = pairs([4.0, 8.0], [0.0, math.pi], [2.0, 0.5])
    figure = clocks_figure(spectrum, kernel([1.5, -0.25, 0.0, np.nan]))
    hands = [each for each in figure.data if each.mode == "markers"]
    tips = {
        (round(x), round(y)): (x, y, told, each.name)
        for each in hands
        for x, y, told in zip(each.x, each.y, each.customdata, strict=True)
    }
    assert 6 == len(tips)
    for row, (wave, phase, size) in enumerate(((4, 0, 2.0), (8, math.pi, 0.5))):
        for offset in (0, 1, 2):
            angle = phase + 2 * math.pi * offset / wave
            x, y, told, name = tips[offset, -row]
            assert x == pytest.approx(offset + RADIUS * math.cos(angle))
            assert y == pytest.approx(-row + RADIUS * math.sin(angle))
            np.testing.assert_allclose(told, [wave, offset, size * math.cos(angle)], atol=1e-12)
            if abs(told[2]) > 1e-9:
                assert name.startswith("adds" if told[2] > 0 else "takes")
    (sums,) = (each for each in figure.data if each.mode == "text")
    assert ("+1.5", "−0.2", "+0.0") == tuple(sums.text)


def test_offsets_on_a_log_axis():
    """Points one to the right, ticks that name the offset, the error around the first alone."""
    head = kernel(np.arange(60.0))
    log = figure_of(head.only("positional_logit", "band_logit"), log_x=True)
    low, high, points, line = log.data[1:5]
    assert [1, 60, 0, 59] == [points.x[0], line.x[-1], points.customdata[0, 0],
                              line.customdata[-1, 0]]  # fmt: skip
    assert ("0", "1", "2", "5", "10", "20", "50") == log.layout.xaxis.ticktext
    assert (1, 2, 3, 6, 11, 21, 51) == log.layout.xaxis.tickvals
    bars = np.append(points.error_y.array, (high.y - low.y) / 2)
    np.testing.assert_allclose(bars, head.errors["positional_logit"])


@pytest.mark.parametrize(("long", "edges"), [(None, [16]), (300.0, [16, 300])])
def test_bands_end_where_they_do(long, edges):
    head = pairs([6.0, 60.0, 600.0], short=16, long=long)
    head.provenance["context"] = 9000
    assert edges == [shape.x0 for shape in shares_of(head).layout.shapes]


def test_of_a_model_half_of_which_is_turned(found):
    spectrum, kernels = (each.select(layer=1, head=2) for each in found)

    def drawn(figure):
        return {each.name: each.y for each in figure.data if each.name}

    logit = drawn(figure_of(kernels.only("positional_logit", "band_logit")))
    values = kernels.values
    whole = logit.pop("S(D)")
    np.testing.assert_allclose(whole, values["positional_logit"][: QUERY - SKIP + 1])
    np.testing.assert_allclose(sum(logit.values()), whole, atol=1e-5)
    usage = figure_of(spectrum.only("wavelength", "usage", "swing", "amplitude")).data
    assert [pytest.approx(1)] * 3 == [np.nansum(each.y) for each in usage]
    shares = drawn(shares_of(spectrum))
    assert [float(spectrum.values["mean_share_keys"])] * 2 == pytest.approx(
        [*shares["keys, all pairs"]]
    )
    assert 3 == len(figure_of(spectrum).data[0].x)


@pytest.mark.parametrize(("wavelength", "still"), [(400.0, False), (50_680.0, True)])
def test_a_wavelength_that_hardly_turns_says_so(wavelength, still):
    """Else a head that uses it most, and is moved most by another, seems to contradict itself."""
    numbers = {"wavelength": [6.28, wavelength], "usage": [0.1, 0.9]}
    part = made("rotary-spectrum", numbers, {"usage": [0.01, 0.01]}, chosen={"layer": 1, "head": 2})
    told = finding_of(replace(part, provenance={"context": 512}))
    assert still == told.endswith("; it hardly turns within 512 tokens.")
    assert told.startswith("By the lengths of its queries and keys L1H2 uses")
