"""A pass needs no more memory for more texts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import poskernel_core as pk
from poskernel_core.common.specs import ALL_GATHERED
from poskernel_core.passes import streaming
from poskernel_core.passes.plan import plan_for
from tests import builders

GATHER = ALL_GATHERED
ROOT = Path(__file__).resolve().parents[1]
MEASURE = """
import json, resource, sys
import numpy as np
import torch
torch.set_num_threads(1)
import poskernel_core as pk
windows = np.random.default_rng(0).integers(1, 293, (int(sys.argv[2]), 41))
gathered = pk.run_pass(pk.load(sys.argv[1], device="cpu"), windows, batch=7)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([gathered.header.windows, peak]))
"""


def test_sums_do_not_grow(model_dirs):
    """The sums of 500 windows are as large as those of 50, one array at a time."""
    model = pk.load(str(model_dirs["gpt2"]), device="cpu")
    shapes = []
    for count in (50, 500):
        ids = builders.random_ids(count, 23).numpy()
        work = streaming.Pass(model, plan_for(model.geometry, ids, (3, 11), 13, True), GATHER)
        work.run(ids, range(5))
        shapes.append({name: array.shape for name, array in work.sums().items()})

    assert shapes[0] == shapes[1]
    assert {
        "key_sum",
        "queries",
        "row_sum",
        "profile_sum",
        "profile_square",
        "residual_sum",
        "centred_square_sum",
        "score_sum",
        "score_square",
        "contrast_sum",
        "contrast_square",
        "query_sum",
    } == set(shapes[0])


@pytest.mark.slow
def test_peak_memory_does_not_grow(model_dirs):
    """The process that reads 500 windows peaks within 5 % of the one that reads 50."""
    peaks = {}
    for count in (50, 500):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(model_dirs["gpt2"]), str(count)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        windows, peaks[count] = json.loads(done.stdout.splitlines()[-1])
        assert count == windows

    assert peaks[500] <= 1.05 * peaks[50]
