"""What is found about rotary heads."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import alike, found, uncertain

SPECTRUM, KERNEL, CHANGED = "rotary-spectrum", "equivariant-kernel", "changed-bands"
HEAD = {"layer": 1, "head": 7}
WAVES = {"wavelength": [6.28, 50.0, 400.0]}


def test_the_wavelength_that_moves_a_head_most():
    swing = {"swing": ([1.2, np.nan, 0.4], 0.1), "phase": [0, 0, 0]}
    assert (
        "L1H7 is moved most by the wavelength of 6.28 tokens: its swing is 1.2 nats, the next "
        "largest 0.40."
    ) == found(SPECTRUM, WAVES | swing, **HEAD)


def test_the_wavelength_that_a_head_uses_most():
    usage = {"usage": ([0.1, 0.3, 0.6], 0.01)}
    assert (
        "L1H7 uses the wavelength of 400 tokens most: 0.60 of its usage, where equal use of all "
        "would be 0.33."
    ) == found(SPECTRUM, WAVES | usage, **HEAD)


def alike_said(queries, keys):
    return found(SPECTRUM, {"mean_share_queries": queries, "mean_share_keys": keys}, **HEAD)


@pytest.mark.parametrize(
    ("queries", "keys", "start"),
    [
        (0.8, 0.9, "L1H7's queries and keys are mostly alike"),
        (0.2, 0.1, "L1H7's queries and keys differ from token to token"),
        (0.8, 0.1, "L1H7's queries are mostly alike, but its keys differ from token to token"),
        (0.1, 0.8, "L1H7's queries differ from token to token, but its keys are mostly alike"),
    ],
)
def test_whether_queries_and_keys_are_alike(queries, keys, start):
    assert (
        f"{start}: their means hold {queries:.2f} and {keys:.2f} of the mean square (limit 0.5)."
    ) == alike_said((queries, 0.01), (keys, 0.01))


def test_bands_of_all_heads():
    weights = np.array([[0.9, 0.1, 0.2], [0.6, 0.3, 0.3]])
    bands = dict(zip(("short_weight", "middle_weight", "long_weight"), (
        (weights, 0.01), (1 - weights, 0.01), (0 * weights, 0.01)), strict=True))  # fmt: skip
    assert (
        "Short wavelengths (up to 16 tokens) make half of the swing or more in 2 of 6 heads for "
        "certain, middle ones in 4, and long ones in 0."
    ) == found(SPECTRUM, bands, {"short": 16.0})
    assert (
        "2 of 6 heads have a weight of short wavelengths of 0.5 or more for certain; L0H0 has the "
        "largest, 0.90."
    ) == found(SPECTRUM, {"short_weight": (weights, 0.01)})
    assert (
        "1 of 1 head has a mean share of keys of 0.5 or more for certain; L0H0 has the largest, "
        "0.60."
    ) == found(SPECTRUM, {"mean_share_keys": ([[0.6]], 0.01)})
    assert "" == found(SPECTRUM, {"dominant_wavelength": [[6.28]]})


def distance(number):
    """What is found where the equivariant kernel is that far from the attention."""
    numbers = {"equivariant_attention_distance": number, "attention_distance": (0.1, 0.01)}
    return found(KERNEL, numbers, **HEAD)


@pytest.mark.parametrize(
    ("far", "says"), [(0.2, "predicts more than half of"), (0.7, "does not predict")]
)
def test_whether_the_equivariant_kernel_predicts(far, says):
    assert (
        f"The equivariant kernel {says} L1H7's attention: their distance is {far:.2f} (limit 0.5), "
        "and that of the positional kernel 0.10."
    ) == distance((far, 0.01))


def test_heads_that_the_equivariant_kernel_predicts():
    far = {"equivariant_attention_distance": ([[0.2, 0.8], [0.49, np.nan]], 0.02)}
    assert (
        "The equivariant kernel predicts more than half of the attention of 1 of 3 heads for "
        "certain (distance below 0.5)."
    ) == found(KERNEL, far)


def test_the_offset_that_position_favours():
    logit = {"positional_logit": ([0.1, 2.3, -1.0, np.nan], 0.2)}
    assert (
        "The positional logit of L1H7 is highest at offset 1: 2.3 nats above its mean over all "
        "offsets."
    ) == found(KERNEL, logit, **HEAD)


def test_the_band_whose_removal_changes_most():
    without = {
        "etc": (3.1, 0.1),
        "band_etc": ([40.2, 3.0, 3.2], 0.1),
        "band_distance": ([0.61, 0.1, 0.0], 0.01),
    }
    assert (
        "Without its short wavelengths the kernel of L1H7 changes most: by a distance of 0.61, to "
        "40.2 effective tokens from 3.1."
    ) == found(KERNEL, without, **HEAD)


def loss(*rises, heads=""):
    """What is found where changes raise the loss; pairs with errors, the first is the clean run."""
    numbers, errors = zip((0.0, 0.0), *rises, strict=True)
    part = {"loss": np.full(len(numbers), 3.0), "loss_change": (numbers, errors)}
    return found(CHANGED, part, {"heads": heads})


def test_the_band_that_the_loss_needs():
    assert (
        "Freezing the middle wavelengths in all heads raises the loss most, by 0.50 nats, from 3 "
        "in the clean run."
    ) == loss((0.1, 0.01), (0.5, 0.01))
    assert (
        "Freezing the middle wavelengths in the chosen heads raises the loss by 0.50 nats, from 3 "
        "in the clean run."
    ) == loss((0.49, 0.01), (0.5, 0.01), heads="L0H1")


def test_the_band_that_moves_a_heads_attention():
    part = {
        "pattern_distance": ([0, 0.1, 0.2, 0.1, 0.7], 0.01),
        "previous_mass": ([0.9, 0.9, 0.9, 0.9, 0.2], 0.01),
        "previous_mass_change": ([0, 0, 0, 0, -0.7], 0.01),
    }
    assert (
        "Removing the short wavelengths moves L1H7's attention most, by a distance of 0.70 from "
        "the clean run; attention to the previous token falls from 0.90 to 0.20."
    ) == found(CHANGED, part, {"head": "L1H7"}, **HEAD)
    assert "" == found(CHANGED, part, {"head": "L0H7"}, **HEAD)


@given(uncertain(0.5), uncertain())
def test_nothing_where_the_interval_holds_the_limit(half, none):
    assert "" == alike_said(half, (0.9, 0.01))
    assert "" == alike_said((0.9, 0.01), half)
    assert "" == distance(half)
    value, error = ([[each]] for each in half)
    for name in ("short_weight", "mean_share_queries"):
        assert "" == found(SPECTRUM, {name: (value, error)})
    assert "" == found(KERNEL, {"equivariant_attention_distance": (value, error)})
    assert "" == loss(none)


@given(alike())
def test_nothing_is_largest_without_a_certain_difference(pair):
    swing = {"wavelength": [6.28, 50.0], "swing": pair, "phase": [0, 0]}
    assert "" == found(SPECTRUM, swing, **HEAD)
    assert "" == found(SPECTRUM, {"wavelength": [6.28, 50.0], "usage": pair}, **HEAD)
    assert "" == found(KERNEL, {"positional_logit": pair}, **HEAD)
    without = {"etc": 3.0, "band_etc": [3.0, 3.0], "band_distance": pair}
    assert "" == found(KERNEL, without, **HEAD)
    assert "most" not in loss(*zip(*pair, strict=True))
