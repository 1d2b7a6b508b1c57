"""Small passes of one model over token ids, for tests of analyses."""

from functools import cache

import poskernel_core as pk

FEW = {
    "samples": 11, "first_windows": 10, "passage_length": 16, "shifts": 3, "tokens": 7,
    "passages": 10, "loss_windows": 3,
}  # fmt: skip
"""Parameters with which questions run a model little."""


@cache
def loaded(path):
    """A model, loaded once."""
    return pk.load(str(path), device="cpu")


def gather(path, windows, start_token=False, what=("keys", "patterns", "scores"), batch=None):
    """The statistics of a pass that keeps the queries of the last position."""
    last = (windows.shape[1] - 1,)
    return pk.run_pass(
        loaded(path), windows, positions=last, start_token=start_token, gather=what, batch=batch
    )
