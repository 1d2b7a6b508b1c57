"""Figures of one score's components, on made-up numbers."""

from typing import Any

import numpy as np
import pytest

from poskernel_core.analyses.score_components import figures
from poskernel_core.analyses.score_components.spec import ScoreComponents

NAMES = ["embedding", "L0H0", "L0H1", "MLP 0", "constant"]
KEYS, KEY, OTHER = 7, 5, 2


def made(alibi: bool = False, **more: Any):
    """Five components, seven keys of which the first is hidden, and any numbers."""
    generator = np.random.default_rng(3)
    tables = generator.standard_normal((KEYS, 5, 5))
    counted = np.array([0, 0, 0, 1, 1, 1, 1.0])
    bias = -0.5 * np.arange(KEYS)[::-1]
    margins = {
        "query_margin": tables.sum(axis=2).T.copy(),
        "key_margin": tables.sum(axis=1).T.copy(),
        "score": tables.sum(axis=(1, 2)) + alibi * bias,
    }
    for each in margins.values():
        each[..., 0] = np.nan
    values = {
        "component_score": tables[KEY],
        "other_component_score": tables[OTHER],
        "mean_component_score": tables[3:].mean(axis=0),
        "counted": counted,
        "chosen_query": np.array(6.0),
        "chosen_key": np.array(float(KEY)),
        **margins,
        **({"alibi_bias": np.where(np.arange(KEYS) > 0, bias, np.nan)} if alibi else {}),
        **more,
    }
    params = ScoreComponents.params(head="L1H2", text="x", key=KEY, other=OTHER)
    return ScoreComponents.result(params, values, texts={"query_names": NAMES, "key_names": NAMES})


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("against", figures.AGAINST)
def test_bars_add_up(monkeypatch, against, alibi):
    """The bars of each panel, and the stack of each visible key, add up to the score compared."""
    monkeypatch.setattr(figures, "STACKED", 2)
    result = made(alibi)
    score = result.values["score"]
    base = {"as it is": 0.0, "against another key": score[OTHER]}.get(against, score[3:].mean())
    panels = figures.score_figure(result, against).data
    assert [score[KEY] - base] * 3 == pytest.approx([sum(panel.x) for panel in panels])
    assert all((figures.ALIBI in panel.y) == alibi for panel in panels)
    assert "the rest (17)" in panels[2].y
    *stacks, whole = figures.keys_figure(result, against).data
    assert [*whole.x] == [*range(1, KEYS)]
    np.testing.assert_allclose(np.sum([each.y for each in stacks], axis=0), whole.y)
    np.testing.assert_allclose(whole.y, score[1:] - base)
    names = [each.name for each in stacks]
    assert ("the rest (3)" in names, len(names)) == (True, 3 + alibi)


def test_those_that_vary_most_are_stacked(monkeypatch):
    """A component with a large score that is the same for all keys is in the rest."""
    monkeypatch.setattr(figures, "STACKED", 1)
    result = made()
    margins = result.values["key_margin"]
    margins[1], margins[3] = 50.0, 9 * np.arange(KEYS)
    figure = figures.keys_figure(result, "as it is")
    assert figure.data[0].name == "MLP 0"
    assert [("a", -2.0), ("b", 1.0)] == figures.largest(["b", "a"], np.array([1.0, -2.0]))
