"""Attention to repeated tokens, and sums that do not depend on batches."""

import numpy as np
import pytest

from poskernel_core.data.made import doubled
from poskernel_core.forward import attention
from tests.support import builders, oracles
from tests.support import oracles_positions as op
from tests.support.passes import gather as gathered

CONTEXT = 31


def gather(path, windows, start_token, what=("repeats",), batch=None):
    return gathered(path, windows, start_token, what, batch).arrays


@pytest.mark.parametrize(
    ("name", "block", "start"), [("gpt_neo", 5, True), ("mistral", 5, False), ("mistral", 64, True)]
)
def test_repeated_tokens(model_dirs, truths, repeating, monkeypatch, name, block, start):
    monkeypatch.setattr(attention, "BLOCK", block)
    arrays = gather(model_dirs[name], repeating, start)

    for layer, pattern in enumerate(truths[name].attentions):
        for head in range(pattern.shape[1]):
            masses = [
                op.previous_mass(text[head].tolist(), ids.tolist(), int(start))
                for text, ids in zip(pattern, repeating, strict=True)
            ]
            for place, each in enumerate(zip(*[pair[::-1] for pair in masses], strict=True)):
                np.testing.assert_allclose(
                    arrays["repeats"][layer, head, place], oracles.mean(each), atol=1e-5
                )
    assert (arrays["repeat_texts"] == 1).all()


def test_batches_do_not_matter(model_dirs):
    ids = doubled(builders.random_ids(13, CONTEXT, seed=2).numpy(), 5, first=0)
    what = ("keys", "patterns", "scores", "repeats")
    whole = gather(model_dirs["mistral"], ids, False, what)
    other = gather(model_dirs["mistral"], ids, False, what, batch=2)

    assert set(whole) == set(other)
    for value, array in whole.items():
        tolerance = 9 if value.endswith(".groups") else 2e-5  # of 32767 steps
        np.testing.assert_allclose(
            other[value].astype(float), array, rtol=1e-4, atol=tolerance, err_msg=value
        )
