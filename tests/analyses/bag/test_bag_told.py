"""What the page on contextual neurons says of a bag that predicts badly."""

import numpy as np
import pytest

from pages.contextual_neurons import bag
from tests.support.made_contextual import neurons


@pytest.fixture
def told(monkeypatch):
    """What stands in the boxes of the page for the centred R² given, in every variant."""

    def of(*rows: float) -> list[str]:
        boxes: list[str] = []
        monkeypatch.setattr(bag.st, "info", lambda text, **_: boxes.append(text))
        found = neurons()
        found.values["bag_centred_r2"][:] = np.nan
        for variant, row in enumerate(rows):
            found.values["bag_centred_r2"][variant, 1:4] = (row - 1, row, row + 0.1)
        bag.say_how_well(found)
        return boxes

    return of


def test_a_bag_that_hardly_predicts(told):
    (box,) = told(-0.5, 0.04, -1.0)
    assert "its centred R² is 0.04 at best" in box
    (box,) = told(-0.5, -0.31)
    assert "is −0.31 at best" in box


def test_a_bag_that_predicts(told):
    assert [] == told(-0.5, 0.3)
    assert [] == told()
