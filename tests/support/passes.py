"""Small passes of one model over token ids, for tests of analyses."""

from functools import cache

import poskernel_core as pk


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
