"""One index of a result: its values and errors, and what is said where there is none."""

import numpy as np
import pytest

from poskernel_core.plotting.parts import part
from tests.support.made_results import scores


def test_a_part_with_its_errors() -> None:
    found = scores()
    value, error = part(found, "induction", layer=1)
    np.testing.assert_array_equal(found.values["induction"][1], value)
    np.testing.assert_array_equal(found.errors["induction"][1], error)
    one = found.select(layer=1, head=2)
    one.errors.clear()
    value, error = part(one, "induction", layer=None, head=None)  # selected before
    assert (found.values["induction"][1, 2], True) == (value, np.isnan(error))


@pytest.mark.parametrize(
    ("name", "at", "message"),
    [
        ("induction", {"layer": 2}, "layer from 0 to 1, received 2"),
        ("induction", {"head": -1}, "head from 0 to 4, received -1"),
        ("induction", {"layer": 0, "head": None}, "head from 0 to 4, received None"),
        ("kernel", {}, "'kernel', received 'induction-scores'"),
    ],
)
def test_a_part_that_there_is_not(name, at, message) -> None:
    with pytest.raises(ValueError, match=message):
        part(scores(), name, **at)
