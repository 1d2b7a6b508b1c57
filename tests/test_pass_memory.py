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
model = pk.load(sys.argv[1], device="cpu")
for count in (50, 500):
    windows = np.random.default_rng(0).integers(1, 293, (count, 41))
    gathered = pk.run_pass(model, windows, batch=7)
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
    """A process that has read 50 windows peaks at most 5 % higher when it reads 500 more."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(model_dirs["gpt2"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = dict(json.loads(line) for line in done.stdout.splitlines()[-2:])

    assert {50, 500} == set(peaks)
    assert peaks[500] <= 1.05 * peaks[50]
