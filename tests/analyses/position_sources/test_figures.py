"""Figures of made results: which bars and edges there are, and what they say."""

import numpy as np
import pytest

from poskernel_core.analyses.position_sources import figures
from poskernel_core.analyses.views import figure_of
from tests.support.made_findings import made

NAMES = ["token embedding", "positional embedding", "constant", "L0H0", "L0H1", "MLP 0"]
SHARE = [0.0, 0.02, -0.1, 0.05, 0.63, 0.4]
OFFSETS = 5


def of_head(**values):
    at = {"query": np.array([4, 9]), "offset": np.arange(OFFSETS)}
    return made("head-position-sources", values, dict.fromkeys(values, 0.01), coordinates=at,
                params={"head": "L1H1"}, texts={"source": NAMES})  # fmt: skip


def test_bars_have_the_written_order_and_the_rest():
    head = of_head(share=SHARE, equal_share=SHARE, effect=np.abs(SHARE))
    shares, equal, effects = figures.bars_figure(head, 3).data

    assert list(shares.y) == ["constant", "L0H1", "MLP 0", "all others"]
    assert list(shares.x) == pytest.approx([-0.1, 0.63, 0.4, 0.07])
    assert list(equal.y) == list(effects.y) == ["constant", "L0H1", "MLP 0"]
    assert list(effects.x) == pytest.approx([0.1, 0.63, 0.4])
    assert shares.text[0] == "−0.100 ± 0.010"


def test_without_shares_the_effects_choose():
    none = np.full(6, np.nan)
    head = of_head(share=none, equal_share=none, effect=SHARE)
    *_, effects = figures.bars_figure(head).data
    assert set(effects.y) == set(NAMES) - {"token embedding"}
    assert len(figures.bars_figure(of_head(share=SHARE, equal_share=SHARE)).data) == 2


def test_the_map_has_offsets_and_components():
    score = np.arange(2 * 6 * OFFSETS, dtype=float).reshape(2, 6, OFFSETS)
    (shown,) = figures.map_figure(of_head(share=SHARE, score=score).select(query=9)).data
    assert list(shown.y) == NAMES[1:]
    np.testing.assert_array_equal(shown.z, score[1, 1:])
    assert list(shown.x) == [*range(OFFSETS)]
    assert shown.zmax == -shown.zmin == score[1].max()


def test_the_parts_of_rotary_shares():
    parts = of_head(share=SHARE, turned_share=np.multiply(SHARE, 0.9), place_share=[0.1] * 6)
    turned, place = figures.turning_figure(parts).data
    assert list(turned.x) == pytest.approx([0.9 * each for each in SHARE[1:]])
    assert list(place.x) == [0.1] * 5


def of_all_heads(*values):
    share = np.full((2, 2, 6), np.nan)
    share[0, 0, 1], share[1, 1] = 1.0, SHARE
    errors = np.where(np.isnan(share), np.nan, 0.01)
    return made("position-sources", dict.fromkeys(values, share), dict.fromkeys(values, errors),
                texts={"source": NAMES})  # fmt: skip


def test_the_default_figure():
    assert "Who feeds whom" in figure_of(of_all_heads("share")).layout.title.text
    one = of_all_heads("share", "equal_share").select(layer=1, head=1)
    assert figure_of(one).layout.title.text.startswith("L1H1")
