"""Values and measures are declared as the definitions print them."""

import pytest

from poskernel_core.analyses.head_measure import HeadMeasure, grid_measures
from poskernel_core.common.result import Value, estimates, outputs


def test_a_text_of_several_declarations():
    found = outputs("""
        low high [layer head], share, 0 to 1: ends: the first
            and the last
        bias, score (nats): alone
        ± mean, nats: with an error
        % part, share of all: from 0 to 1
    """)

    pair = ("layer", "head"), "share, 0 to 1", "ends: the first and the last"
    alone = Value("bias", (), "score (nats)", "alone")
    mean = Value("mean", (), "nats", "with an error", has_error=True)
    part = Value("part", (), "share of all", "from 0 to 1", True, kind="share", bounds=(0, 1))
    assert (Value("low", *pair), Value("high", *pair), alone, mean, part) == found
    assert outputs("low high [layer head]", *pair[1:]) == found[:2]
    assert all(value.has_error for value in estimates("a b, nats: two"))


def test_measures_of_the_grid():
    (found,) = grid_measures("a share [share, unit], variation (0: alike): Dark: it, all", last="k")

    assert HeadMeasure("a share", "share", "variation (0: alike)", "Dark: it, all", "unit",
                       last="k") == found  # fmt: skip


@pytest.mark.parametrize("declare", [outputs, grid_measures])
def test_a_declaration_without_all_its_parts_is_refused(declare):
    with pytest.raises(ValueError, match="not enough values"):
        declare("etc [layer head]: effective tokens")
