"""Intervals of 95 % hold what many texts say, in about 95 of 100 samples of few texts."""

from dataclasses import replace

import numpy as np
import pytest

import tools.coverage
from poskernel_core.common.result import NORMAL
from tests.support.made_results import result
from tools.coverage import answered, by_kind, coverage, of_differences, short_documents

SAMPLES, WINDOWS, DOCUMENTS = 20, 60, 200


@pytest.fixture(scope="module")
def answers():
    """Those of a quarter of the documents, and of samples from them."""
    some = short_documents()[:DOCUMENTS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools.coverage, "short_documents", lambda: some)
        truth, *found = answered("demo-attn-2l", [0, *[WINDOWS] * SAMPLES])
    return truth, found


@pytest.fixture(scope="module")
def found(answers):
    return coverage(*answers)


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        "etc: etc", "etc: half_mass_distance", "etc: local_mass", "etc: query_variation",
        "etc: attention_distance", "kernel-distances: distance", "entropy: entropy",
        "foreseen-attention: share_16", "one head on two samples: distance",
    ],
)  # fmt: skip
def test_intervals_hold_the_truth(found, value):
    assert found[value].held.mean() > 0.92
    assert found[value].held.min() >= min(0.75, found[value].lowest)


@pytest.mark.slow
def test_most_of_a_bias_is_gone(found):
    for value, most in (("etc: etc", 0.5), ("etc: query_variation", 0.5),
                        ("etc: attention_distance", 0.7)):  # fmt: skip
        left, before = (
            np.abs(np.median(part)) for part in (found[value].left, found[value].before)
        )
        assert left < most * before
        assert before > 0.2


@pytest.mark.slow
def test_each_kind_has_its_own_coverage(answers, found):
    """That of the declared kind is that of the table."""
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in by_kind(*answers)]
    cells = {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}
    assert {"etc: local_mass", "previous-token: repeated_mass"} <= cells.keys()
    for value, row in cells.items():
        held = found[value].held
        assert f"{100 * held.mean():.1f} ({100 * held.min():.0f})" == row[row["declared"]]
    shares = [row for row in cells.values() if row["declared"] == "share"]
    assert any(row["share"] != row["smooth"] for row in shares)


def test_differences_by_hand():
    """Two heads move alike, so their difference is always the same; the third moves against them.

    Its differences vary by 2 where independent ones vary by the root of 2, twice as far from their
    mean as their intervals' ends, 1.41.
    """
    found = []
    for row in ([1.0, 2.0, 3.0], [3.0, 4.0, 1.0]):
        one = result("entropy", {}, {"entropy": np.array([row])[..., None]})
        one = replace(one, errors={"entropy": np.full((1, 3, 1), 1 / NORMAL)})
        found.append({"entropy": one.select(query=0)})
    *_, row = of_differences(found)
    assert "| attention entropy | 0.14 1.41 1.41 | 33.3 |" == row


def test_documents_are_short():
    texts = short_documents()
    assert len(texts) >= 1100
    assert all(len(text) >= 700 for text in texts)
    assert all("\n" not in text.strip() for text in texts if len(text) > 1050)
    assert texts == short_documents()
