"""What is found in interventions."""

import numpy as np
import pytest
from hypothesis import given

from tests.support.made_findings import found, uncertain


def loss(rise, **params):
    """What is found where the loss changes."""
    numbers = {"loss_change": rise, "mean_clean_loss": 2.0}
    return found("intervention", numbers, {"change": "remove"} | params)


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({}, "Removing the positional embeddings"),
        ({"embeddings": "tokens"}, "Removing the token embeddings"),
        ({"change": "average", "group": 20}, "Averaging positions in groups of 20"),
        ({"change": "average", "layer": 2}, "Averaging positions in groups of 10 before layer 2"),
        ({"change": "blind"}, "Cutting out the previous token at one position in 5"),
        ({"change": "move", "head": "L1H2"}, "Moving the attention of L1H2"),
        ({"change": "move", "edited": "L0H3"}, "Moving the attention of L0H3"),
        ({"change": "ablate", "heads": "L0H3, L1H4"}, "Ablating L0H3, L1H4"),
        ({"change": "ablate", "heads": "L0H3, " * 9}, "Ablating the chosen heads"),
    ],
)
def test_every_change_by_its_name(params, what):
    assert (
        f"{what} raises the loss on this prompt by 1.24 nats per token, from 2 in the clean run."
    ) == loss((1.24, 0.1), **params)


def test_the_loss_along_the_prompt():
    numbers = {"clean_loss": [np.nan, 1.0, 2.0, 3.0], "changed_loss": [np.nan, 0.4, 1.5, 2.6]}
    assert (
        "Removing the positional embeddings lowers the loss on this prompt by 0.50 nats per token, "
        "from 2 in the clean run."
    ) == found("intervention", numbers, {"change": "remove"})
    one = {name: each[:2] for name, each in numbers.items()}
    assert "" == found("intervention", one, {"change": "remove"})


@given(uncertain())
def test_no_effect_on_the_loss_without_a_certain_one(change):
    assert "" == loss(change)
    shift, error = change
    rise = shift + error * np.sqrt(3) * np.array([-1.0, 0, 1])
    clean = np.array([np.nan, 1, 1, 1])
    numbers = {"clean_loss": clean, "changed_loss": clean + np.append(0, rise)}
    assert "" == found("intervention", numbers, {"change": "remove"})


def next_token(changed):
    numbers = {"clean_probability": [0.9, 0.1], "changed_probability": changed}
    return found("intervention", numbers, texts={"candidates": [" turtle", "\n"]})


def test_the_next_token():
    assert (
        "The likeliest next token stays “␣turtle”, with a probability of 0.90 in the clean run and "
        "0.70 in the changed run."
    ) == next_token([0.7, 0.2])
    assert (
        "The likeliest next token changes from “␣turtle” (0.90 in the clean run) to “⏎” (0.70 in "
        "the changed run)."
    ) == next_token([0.2, 0.7])


def masses(clean, changed):
    change = np.subtract(changed, clean)
    numbers = {"previous_mass_change": change, "clean_previous_mass": clean}
    return found("intervention", numbers | {"changed_previous_mass": changed})


def test_heads_that_turn_from_the_previous_token():
    clean = [[0.1, 0.9, 0.2], [np.nan, 0.8, 0.2]]
    assert (
        "2 heads gain or lose 0.3 or more of the attention to the previous token; L0H1 changes "
        "most, from 0.90 in the clean run to 0.12."
    ) == masses(clean, [[0.1, 0.12, 0.2], [np.nan, 0.4, 0.2]])
    assert (
        "No head gains or loses 0.3 or more of the attention to the previous token; L1H2 changes "
        "most, from 0.20 in the clean run to 0.30."
    ) == masses(clean, [[0.1, 0.9, 0.2], [np.nan, 0.8, 0.3]])
    assert "Every head attends to the previous token as in the clean run." == masses(clean, clean)


def pattern(difference):
    zeros = np.zeros((2, 2))
    numbers = {"clean": zeros, "changed": zeros, "difference": difference}
    return found("intervention", numbers, {"change": "remove", "head": "L1H2"})


def test_how_much_attention_moves():
    assert (
        "Removing the positional embeddings moves 0.20 of L1H2's attention on this prompt, a mean "
        "over its rows, compared with the clean run."
    ) == pattern([[0, 0], [-0.4, 0.4]])
    assert ("L1H2 attends as in the clean run: the change does not reach its pattern.") == pattern(
        np.zeros((2, 2))
    )


def groups(*changes):
    """What is found where groups of 1 (clean), 5 and 10 change the loss."""
    numbers, errors = zip((0.0, 0.0), *changes, strict=True)
    part = {"loss": [3.2, 3.3, 3.4], "loss_change": (numbers, errors)}
    return found("averaging", part, coordinates={"group": [1, 5, 10]})


def test_from_what_size_of_group_on_averaging_harms():
    assert (
        "Averaging positions raises the loss for certain from groups of 10 on: by 0.31 nats, from "
        "3.2 in the clean run."
    ) == groups((0.01, 0.1), (0.31, 0.1))
    assert "from groups of 5 on: by 0.20 nats" in groups((0.2, 0.01), (0.31, 0.1))


@given(uncertain())
def test_no_harm_that_is_not_certain(change):
    assert "" == groups((0.2, 0.01), change)
