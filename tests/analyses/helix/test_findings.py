"""What is found about the helix, and about how heads read it."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import found, uncertain

HEAD = {"layer": 2, "head": 5}


def shares(*held):
    """Layers whose first three components hold some of the variance each."""
    return {"explained_variance": [[each / 2, each / 4, each / 4, 0.01] for each in held]}


def test_whether_three_components_hold_the_variance():
    assert (
        "The first three components hold 0.85 or more of the variance over positions in 2 of 3 "
        "layers (0.91 before layer 0), so the curve shows nearly all of it there."
    ) == found("helix", shares(0.91, 0.95, 0.5))
    assert (
        "The first three components hold less than 0.85 of the variance over positions (0.80 "
        "before layer 0), so three dimensions do not show the whole curve."
    ) == found("helix", shares(0.8, 0.1))
    assert (
        "The first three components hold 0.85 or more of the variance over positions (0.90 before "
        "layer 2), so the curve shows nearly all of it."
    ) == found("helix", {"explained_variance": [0.5, 0.3, 0.1]}, layer=2)
    assert "" == found("helix", shares(0, 0))


def test_how_far_subspaces_turn():
    angles = np.zeros((3, 3, 2))
    angles[0, 2] = 10, 80.5
    both = {"angles_residual": angles, "angles_position": angles / 2}
    assert (
        "From layer 0 to layer 2 the top-2 subspace turns by up to 80.5° in the residual stream "
        "and 40.2° in position space (90°: a new direction at right angles)."
    ) == found("helix", both, {"subspace": 2})
    assert "" == found("helix", {name: each[:1, :1] for name, each in both.items()})


def test_entries_far_from_0():
    assert (
        "The share of entries far from 0 (beyond 2 rms) falls from 0.30 before layer 0 to 0.10 "
        "before layer 2."
    ) == found("helix", {"far_share": [0.3, 0.5, 0.1]}, {"far": 2.0})
    assert "" == found("helix", {"far_share": [0.3]})
    assert "" == found("helix", {"projection": np.zeros((2, 3, 3))})


def reading(fit, *parts):
    """What is found about a head with this fit, and shares along tangent, radius and the third."""
    names = ("tangent_share", "radial_share", "third_share")
    numbers = dict(zip(names, parts, strict=True)) | {"helix_fit": fit}
    return found("tangent", numbers, **HEAD)


@pytest.mark.parametrize(
    ("fit", "parts", "sentence"),
    [
        (0.9, (0.1, 0.8, 0.1), "L2H5 reads the helix mostly along its radius: 0.80 of its reading "
         "direction (limit 0.5), where the helix explains 0.90 of its scores by position."),
        (0.9, (0.4, 0.35, 0.25), "L2H5 reads the helix along no single direction: each holds less "
         "than 0.5 of its reading direction (tangent 0.40, radius 0.35, third direction 0.25)."),
        (0.2, (0.1, 0.8, 0.1), "The helix explains only 0.20 of the variance of L2H5's scores by "
         "position (limit 0.5): the head reads more than three components hold."),
    ],
)  # fmt: skip
def test_the_direction_that_a_head_reads(fit, parts, sentence):
    assert sentence == reading((fit, 0.01), *((part, 0.01) for part in parts))


def test_heads_that_read_the_tangent():
    numbers = {"tangent_share": ([[0.9, 0.8, 0.4]], 0.01), "helix_fit": ([[0.9, 0.3, 0.9]], 0.01)}
    assert (
        "1 of 3 heads certainly reads the helix along its tangent: 0.5 or more of the reading "
        "direction, where the helix explains 0.5 or more of the scores."
    ) == found("tangent", numbers)


@given(uncertain(0.5))
def test_nothing_where_the_interval_holds_the_limit(number):
    assert "" == reading(number, (0.9, 0.01), (0.1, 0.01), (0.0, 0.01))
    assert "" == reading((0.9, 0.01), number, (0.1, 0.01), (0.1, 0.01))
    value, error = ([[each]] for each in number)
    assert "" == found("tangent", {"tangent_share": (value, error), "helix_fit": [[0.9]]})
    assert "" == found("tangent", {"tangent_share": [[0.9]], "helix_fit": (value, error)})
