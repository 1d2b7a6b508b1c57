"""What a pass knew of itself: read from manifests, and written as it was."""

import json

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.header import PassHeader
from poskernel_core.common.views import Gathered
from poskernel_core.engine.engine import describe_run
from poskernel_core.storage.statistics import StoredStatistics, part_key, write_statistic
from poskernel_core.storage.store import Store

STORED = {
    "n_layers": 2, "n_heads": 8, "n_kv_heads": 4, "n_ctx": 64, "n_vocab": 100,
    "architecture": "mistral", "scheme": "rotary", "d_head": 3, "d_model": 24, "context": 7,
    "windows": 1, "positions": [3, 6], "samples": 1, "start_token": False, "device": "cpu",
    "dtype": "bfloat16", "headless": [None, "a mixer"], "groups": 1, "dealt": "stretches",
    "scales": [0.125, 1.0],
    "sliding_windows": [5, None], "chunks": [None, 4], "caps": [30.0, None], "slopes": [],
    "resumed_at_window": 0, "seconds": 0.25, "dtype_error": 0.0625, "tokens": [" a", "b"],
    "shards": 2,
}  # fmt: skip


def test_written_as_it_was_read():
    header = PassHeader.read(STORED)
    assert ((0.125, 1.0), (5, None), (3, 6), (" a", "b")) == (
        header.scales, header.sliding_windows, header.positions, header.tokens,
    )  # fmt: skip
    assert json.dumps(STORED) == json.dumps(header.model_dump(mode="json"))


def test_some_of_its_groups():
    header = PassHeader.read(STORED | {"windows": 70, "samples": 20, "groups": 10})
    few = header.of_groups(9)
    assert (63, 18, 9) == (few.windows, few.samples, few.groups)
    assert header == few.model_copy(update={"windows": 70, "samples": 20, "groups": 10})


@pytest.mark.parametrize("change", [{"n_layers": None}, {"scales": "none"}, {"windows": [7]}])
def test_a_manifest_of_another_layout_is_a_miss(tmp_path, change):
    store, run = Store(tmp_path), describe_run("demo-attn-2l", windows=1, context=7)
    run = run.model_copy(update={"gather": ("keys",)})
    layers = [{"mean_keys": np.zeros((4, 7, 3), np.float32)}] * 2
    write_statistic(store, run, "keys", PassHeader.read(STORED), layers)
    assert StoredStatistics.open(store, run).header == PassHeader.read(STORED)

    manifest = {"pass": STORED | change, "arrays": {"mean_keys": 2}}
    store.put(part_key(run, "keys", "manifest"), manifest, {})
    assert StoredStatistics.open(store, run) is None


def test_statistics_without_their_run():
    with pytest.raises(BadRequest, match=r"what pk\.run_pass returned"):
        pk.analyse("etc", Gathered(PassHeader.read(STORED), {}))
