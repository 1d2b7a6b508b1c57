"""What the page on contextual neurons says of a bag that predicts badly."""

import numpy as np
import pytest

from pages.contextual_neurons import bag
from tests.support.made_results import answer


@pytest.mark.parametrize(
    ("rows", "told"),
    [((-0.5, 0.04, -1.0), "R² is 0.04"), ((-0.5, -0.31), "is −0.31"), ((-0.5, 0.3), None),
     ((), None)],
)  # fmt: skip
def test_a_bag_that_hardly_predicts_is_told(monkeypatch, rows, told):
    boxes, found = [], answer("contextual-neurons", sizes={"variant": 4})
    monkeypatch.setattr(bag.st, "info", lambda text, **_: boxes.append(text))
    found.values["bag_centred_r2"][:] = np.nan
    for variant, row in enumerate(rows):
        found.values["bag_centred_r2"][variant, 1:4] = (row - 1, row, row + 0.1)
    bag.say_how_well(found)
    assert bool(told) == len(boxes)
    assert all(told in box for box in boxes)
