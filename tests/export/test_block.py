"""Blocks of numbers of all heads: how offsets are grouped, and what a browser reads from them."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.export.block import EXACT, binned, edges, packed
from tests.support.made_findings import made

LAYERS, HEADS, KEYS, SKIP, QUERY = 2, 3, 53, 5, 47


def kernels() -> Result:
    rng = np.random.default_rng(7)
    shape = (LAYERS, HEADS, KEYS)
    values = {n: rng.random(shape) for n in ("kernel", "kernel_low", "kernel_high", "observed")}
    return made(
        "kernel",
        values,
        {"kernel": rng.random(shape)},
        params={"skip": SKIP, "query": QUERY, "source": "mean"},
        provenance={"model": "a model", "revision": None},
    )


def unpacked(block: bytes) -> tuple[dict, np.ndarray]:
    """As the browser reads it."""
    length = int.from_bytes(block[:4], "little")
    header = json.loads(block[4 : 4 + length])
    assert (4 + length) % 8 == 0
    numbers = np.frombuffer(block[4 + length :], "<f2")
    bins = len(header["offsets"]) - 1
    return header, numbers.reshape(len(header["names"]), *header["shape"], bins)


def test_a_block_holds_every_offset_up_to_32_and_means_beyond():
    found = kernels()
    header, numbers = unpacked(packed(found))
    assert ("a model", QUERY, SKIP) == tuple(header[name] for name in ("model", "n", "skip"))
    named = ["kernel", "kernel_error", "kernel_low", "kernel_high", "observed"]
    assert (named, [LAYERS, HEADS]) == (header["names"], header["shape"])
    starts = header["offsets"]
    assert starts[-1] == QUERY - SKIP + 1
    for number, name in enumerate(named):
        whole = (found.errors if name.endswith("_error") else found.values)[
            name.removesuffix("_error")
        ]
        for layer, head in np.ndindex(LAYERS, HEADS):
            for place, (first, end) in enumerate(pairwise(starts)):
                seen = [whole[layer, head, QUERY - offset] for offset in range(first, end)]
                assert end == first + 1 or first > EXACT
                np.testing.assert_allclose(
                    numbers[number, layer, head, place], np.mean(seen), rtol=1e-3
                )


def test_bins_by_hand():
    """Other results have no block."""
    assert [0, 1, 2] == edges(2).tolist()
    assert [*range(34), 37, 42, 43] == edges(43).tolist()
    assert [*range(33), 34.5, 38.0] == binned(np.arange(40.0)[None, None])[0, 0].tolist()
    with pytest.raises(BadRequest, match="kernels or profiles of all heads"):
        packed(kernels().select(layer=0, head=1))


@given(st.integers(1, 3000))
def test_bins_hold_every_offset_once(length):
    ends = edges(length)
    assert (0, length) == (ends[0], ends[-1])
    assert (np.diff(ends) > 0).all()
    mass = np.random.default_rng(length).random((1, 1, length))
    assert binned(mass) @ np.diff(ends) == pytest.approx(mass.sum())
