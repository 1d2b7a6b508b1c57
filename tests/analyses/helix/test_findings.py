"""What is found about the helix, and about how heads read it."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import check, found, uncertain

ANGLES = np.zeros((3, 3, 2))
ANGLES[0, 2] = 10, 80.5
BOTH = {"angles_residual": ANGLES, "angles_position": ANGLES / 2}


def shares(*held):
    """Layers whose first three components hold some of the variance each."""
    return {"explained_variance": [[each / 2, each / 4, each / 4, 0.01] for each in held]}


@pytest.mark.parametrize(
    ("numbers", "params", "at", "parts"),
    [
        (shares(0.91, 0.95, 0.5), {}, {}, "0.85 or more|2 of 3 layers (0.91 before layer 0)"),
        (shares(0.8, 0.1), {}, {}, "hold less than 0.85|(0.80 before layer 0)"),
        ({"explained_variance": [0.5, 0.3, 0.1]}, {}, {"layer": 2}, "(0.90 before layer 2)"),
        (BOTH, {"subspace": 2}, {}, "to layer 2 the top-2|80.5° in the residual|40.2° in position"),
        ({"far_share": [0.3, 0.5, 0.1]}, {"far": 2.0}, {},
         "beyond 2 rms|falls from 0.30 before layer 0 to 0.10 before layer 2"),
    ],
)  # fmt: skip
def test_the_helix(numbers, params, at, parts):
    check(found("helix", numbers, params, **at), *parts.split("|"))


@pytest.mark.parametrize(
    "numbers",
    [shares(0, 0), {name: each[:1, :1] for name, each in BOTH.items()}, {"far_share": [0.3]},
     {"projection": np.zeros((2, 3, 3))}],
)  # fmt: skip
def test_nothing_of_one_layer_or_of_no_variance(numbers):
    assert "" == found("helix", numbers)


def reading(fit, *parts):
    """What is found about a head with this fit, and shares along tangent, radius and the third."""
    names = ("tangent_share", "radial_share", "third_share")
    numbers = dict(zip(names, parts, strict=True)) | {"helix_fit": fit}
    return found("tangent", numbers, layer=2, head=5)


def test_the_direction_that_heads_read():
    for fit, parts, said in (
        (0.9, (0.1, 0.8, 0.1), "L2H5 reads the helix mostly along its radius: 0.80|explains 0.90"),
        (0.9, (0.4, 0.35, 0.25), "L2H5|no single direction|(tangent 0.40, radius 0.35, third di"),
        (0.2, (0.1, 0.8, 0.1), "The helix explains only 0.20|L2H5"),
    ):
        check(reading((fit, 0.01), *((part, 0.01) for part in parts)), *said.split("|"))
    numbers = {"tangent_share": ([[0.9, 0.8, 0.4]], 0.01), "helix_fit": ([[0.9, 0.3, 0.9]], 0.01)}
    check(found("tangent", numbers), "1 of 3 heads reads", "tangent")


@given(uncertain(0.5))
def test_nothing_where_the_interval_holds_the_limit(number):
    assert "" == reading(number, (0.9, 0.01), (0.1, 0.01), (0.0, 0.01))
    assert "" == reading((0.9, 0.01), number, (0.1, 0.01), (0.1, 0.01))
    value, error = ([[each]] for each in number)
    assert "" == found("tangent", {"tangent_share": (value, error), "helix_fit": [[0.9]]})
    assert "" == found("tangent", {"tangent_share": [[0.9]], "helix_fit": (value, error)})
