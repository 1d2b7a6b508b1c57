"""Figures of made results: which bars and edges there are, and what they say."""

import numpy as np
import pytest

from poskernel_core.analyses.position_sources import figures
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result, texts_array

NAMES = ["token embedding", "positional embedding", "constant", "L0H0", "L0H1", "MLP 0"]
SHARE = [0.0, 0.02, -0.1, 0.05, 0.63, 0.4]
OFFSETS = 5


def made(**values):
    axes = {"share": ("component",), "score": ("query", "component", "offset")}
    return Result(
        analysis="head-position-sources",
        params={"head": "L1H1"},
        values={name: np.array(value) for name, value in values.items()},
        axes={name: axes.get(name, ("component",)) for name in values} | {"source": ("component",)},
        units=dict.fromkeys((*values, "source"), ""),
        errors={name: np.full(np.shape(value), 0.01) for name, value in values.items()},
        texts={"source": texts_array(NAMES)},
        coordinates={"query": np.array([4, 9]), "offset": np.arange(OFFSETS)},
    )


def test_bars_have_the_written_order_and_the_rest():
    head = made(share=SHARE, equal_share=SHARE, effect=np.abs(SHARE))
    shares, equal, effects = figures.bars_figure(head, 3).data

    assert list(shares.y) == ["constant", "L0H1", "MLP 0", "all others"]
    assert list(shares.x) == pytest.approx([-0.1, 0.63, 0.4, 0.07])
    assert list(equal.y) == list(effects.y) == ["constant", "L0H1", "MLP 0"]
    assert list(effects.x) == pytest.approx([0.1, 0.63, 0.4])
    assert shares.text[0] == "−0.100 ± 0.010"


def test_without_shares_the_effects_choose():
    none = np.full(6, np.nan)
    head = made(share=none, equal_share=none, effect=SHARE)
    *_, effects = figures.bars_figure(head).data
    assert set(effects.y) == set(NAMES) - {"token embedding"}
    assert len(figures.bars_figure(made(share=SHARE, equal_share=SHARE)).data) == 2


def test_the_map_has_offsets_and_components():
    score = np.arange(2 * 6 * OFFSETS, dtype=float).reshape(2, 6, OFFSETS)
    (shown,) = figures.map_figure(made(share=SHARE, score=score).select(query=9)).data
    assert list(shown.y) == NAMES[1:]
    np.testing.assert_array_equal(shown.z, score[1, 1:])
    assert list(shown.x) == [*range(OFFSETS)]
    assert shown.zmax == -shown.zmin == score[1].max()


def test_the_parts_of_rotary_shares():
    parts = made(share=SHARE, turned_share=np.multiply(SHARE, 0.9), place_share=[0.1] * 6)
    turned, place = figures.turning_figure(parts).data
    assert list(turned.x) == pytest.approx([0.9 * each for each in SHARE[1:]])
    assert list(place.x) == [0.1] * 5


def every():
    share = np.full((2, 2, 6), np.nan)
    share[0, 0, 1], share[1, 1] = 1.0, SHARE
    return Result(
        analysis="position-sources",
        params={},
        values={"share": share},
        axes={"share": ("layer", "head", "component"), "source": ("component",)},
        units={"share": "", "source": "name"},
        errors={"share": np.where(np.isnan(share), np.nan, 0.01)},
        texts={"source": texts_array(NAMES)},
    )


def test_the_default_figure():
    assert "Who feeds whom" in figure_of(every()).layout.title.text
    one = every().select(layer=1, head=1)
    one = Result(**{**vars(one), "values": dict(one.values) | {"equal_share": one.values["share"]},
                    "axes": one.axes | {"equal_share": ("component",)},
                    "units": one.units | {"equal_share": ""}})  # fmt: skip
    assert figure_of(one).layout.title.text.startswith("L1H1")
