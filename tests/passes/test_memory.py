"""A pass needs no more memory for more texts; which models stay in memory."""

import gc
import json
import subprocess
import sys
import weakref
from types import SimpleNamespace

import psutil
import pytest
import torch

from poskernel_core.common.errors import ComputeFailed, NoSpace
from poskernel_core.common.shards import WHOLE, Shard
from poskernel_core.common.specs import ALL_GATHERED, Execution
from poskernel_core.forward import loading, memory
from poskernel_core.models import catalog
from poskernel_core.models.geometry import bytes_gathered, bytes_kept, bytes_saved
from poskernel_core.models.weights import count_numbers
from poskernel_core.passes import runner, streaming, worker_context
from poskernel_core.passes.prepare import locate_again, sizes_for
from poskernel_core.passes.worker_context import ModelCache, WorkerContext
from poskernel_core.statistics import Statistic
from poskernel_core.storage.shards import Partial, partials_of
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import ROOT, builders
from tests.support.stages import run_over

pytestmark = pytest.mark.usefixtures("unchecked")

GATHER = ALL_GATHERED
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


@pytest.fixture
def run(model_dirs, tmp_path):
    """Ten groups of five windows."""
    ids = builders.random_ids(50, 41).numpy()
    return run_over(tmp_path, model_dirs["gpt2"], ids, 50, gather=GATHER)


@pytest.mark.parametrize(("gather", "queries"), [(GATHER, 64), (("queries", "keys"), 10)])
def test_the_sums_of_one_group_are_held(tmp_path, run, monkeypatch, gather, queries):
    """A pass allocates them once; what it takes in the store is what is said, and goes again."""
    monkeypatch.setattr(runner, "free_memory", lambda: 0)
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(runner, "write_checkpoint", watched(runner.write_checkpoint))
    run = run.model_copy(update={"gather": gather, "queries_per_position": queries})
    made, zeros = [], Statistic.zeros

    def allocate(*given, **how):
        made.append(zeros(*given, **how))
        return made[-1]

    monkeypatch.setattr(Statistic, "zeros", allocate)
    store, sizes, room = Store(tmp_path / "store"), [], []
    put, make_room = Store.put, Store.make_room
    monkeypatch.setattr(Store, "make_room", lambda *a: room.append(a[1]) or make_room(*a))

    def measured(store, key, header, arrays):
        put(store, key, header, arrays)
        sizes.append(sum(store.keys().values()))

    monkeypatch.setattr(Store, "put", measured)
    shared, execution = WorkerContext(store), Execution(device="cpu", batch=2)
    runner.gather_run(shared, run, execution, {}, lambda *_: None)

    assert (8 if gather == GATHER else 2) == len(made)
    allocated = sum(total.numel() for total in made)
    plan = shared.prepare(run, execution, locate_again(run), None)[1]
    numbers = streaming.Pass(shared.models.take(locate_again(run), "cpu"), plan, gather).numbers()
    assert allocated == sum(numbers.values())
    manifests = 2**10 * 11 * len(gather)
    layers = 2**10 * 11 * 3 * len(gather)  # headers of entries
    said = bytes_gathered(numbers, 10) + bytes_saved(numbers)
    assert 0.8 * said < max(sizes) <= said + manifests + layers
    assert said == room[0]
    held = sum(
        array.nbytes
        for layer in range(3)
        for array in StoredStatistics.open(store, run).layer(layer).values()
    )
    assert 0.9 * held < bytes_kept(numbers, 10) < held
    assert held < sum(store.keys().values()) < held + 2**10 * 4 * len(gather) + 2**16


@pytest.mark.parametrize("number", [0, 2, 7])
def test_room_for_a_shard(tmp_path, run, monkeypatch, number):
    """Sums of a part of a group take twice as much."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr("poskernel_core.common.shards.TOKENS_PER_STEP", 41)
    store, sizes, room = Store(tmp_path / "store"), [], []
    put, make_room = Store.put_bytes, Store.make_room
    monkeypatch.setattr(Store, "make_room", lambda *a: room.append(a[1]) or make_room(*a))
    monkeypatch.setattr(
        Store, "put_bytes", lambda *a: put(*a) or sizes.append(sum(store.keys().values()))
    )
    given = Execution(device="cpu", batch=1), {}, lambda *_: None
    assert runner.gather_shard(WorkerContext(store), run, Shard(number=number, of=8), *given)

    headers = 2**10 * 12 * 4 * len(GATHER)
    assert 0.8 * room[0] < max(sizes) <= room[0] + headers


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_sizes_of_sums(model_dirs, name):
    """What is said without torch is right, but for a number per layer."""
    model = loading.load(catalog.locate(str(model_dirs[name])), "cpu")
    sizes = sizes_for(model.geometry, builders.random_ids(50, 41).numpy(), (5, 23, 40), 64, True)
    said = model.geometry.sums(41, 3, 5)
    if model.geometry.scheme != "rotary":
        del said["rotary"]
    numbers = streaming.Pass(model, sizes, tuple(said)).numbers()
    parts = {each: said[each] / numbers[each] for each in said}
    assert all(0.99 < part <= 1 for part in parts.values()), parts


def watched(write):
    """A checkpoint's sums are those of one group, and no other of them is there."""

    def check(store, run, group, done, made, sums, shard):
        write(store, run, group, done, made, sums, shard)
        written = {each.group for each in partials_of(store, run, "keys", shard)}
        assert set(range(group)) == written

    return check


@pytest.mark.parametrize("together", [False, True])
def test_nothing_half_written_counts(tmp_path, run, monkeypatch, together):
    """Where the store fails within a group, the groups before it stay, and it is read again.

    If the sums of all groups were in memory, all are read again since the last checkpoint.
    """
    if not together:
        monkeypatch.setattr(runner, "free_memory", lambda: 0)
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3600")  # none by time, on no machine
    store, put, left = Store(tmp_path / "store"), Store.put_bytes, [16 if together else 70]

    def failing(store, key, data):
        left[0] -= 1
        if left[0] < 0:
            raise NoSpace("No space is left.")
        put(store, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_bytes", failing)
        with pytest.raises(NoSpace):
            runner.gather_run(WorkerContext(store), run, Execution(), {}, lambda *_: None)
    entries = 4 * len(GATHER)  # three layers and a manifest
    kept = 0 if together else 70 // entries
    assert [0, 3][not together] == kept == len(partials_of(store, run, "scores", WHOLE))
    assert StoredStatistics.open(store, run) is None
    runner.gather_run(WorkerContext(store), run, Execution(), {}, lambda *_: None)

    again = 1 if together else 3 * 5
    assert again == StoredStatistics.open(store, run).header.resumed_at_window
    assert not [key for key in store.keys("") if Partial.read(store.get(key)[0])]
    assert entries == len(store.keys())


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


NAMES = ("gpt2", "llama", "opt")


@pytest.fixture
def located(model_dirs):
    """Three models of different sizes."""
    return [catalog.locate(str(model_dirs[name])) for name in NAMES]


@pytest.fixture
def card(monkeypatch, located):
    """A GPU as large as is said, the models on it, and what was free when each was loaded."""
    loaded = []
    card = SimpleNamespace(size=0.0, free_before=[], need={})
    for each in located:
        files = catalog.weight_files(each.spec.name, each.directory)
        card.need[each.spec.name] = memory.needed(count_numbers(each.spec.name, files), "float32")

    def free():
        return card.size - sum(need for module, need in loaded if module() is not None)

    def load(found, _device, dtype="float32"):
        need = card.need[found.spec.name]
        card.free_before.append(free())
        memory.check_room(found.spec.name, round(need / memory.needed(1, "float32")), dtype, free())
        model = loading.load(found, "cpu", dtype)
        loaded.append((weakref.ref(model.module), need))
        return model

    for module in (loading, worker_context):
        monkeypatch.setattr(module, "pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free(), card.size))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**12))
    monkeypatch.setattr(worker_context, "load", load)
    card.places = []
    monkeypatch.setattr(worker_context.arithmetic, "run_on", card.places.append)
    gc.disable()  # as if nobody cleared away by chance
    yield card
    gc.enable()


def test_where_arithmetic_runs(card, located):
    """On the CUDA device that runs models, but not beside a pass in TF32, nor on `mps`."""
    card.size = 10 * sum(card.need.values())
    models = ModelCache()
    taken = [("cuda", "float32"), ("cuda", "tf32"), ("mps", "float32"), ("cpu", "float32")]
    for device, dtype in [*taken, ("cuda", "bfloat16")]:
        models.take(located[0], device, dtype)
    with models.holding(located[0].spec, "cuda", "tf32"):
        models.take(located[0], "cuda")
    models.take(located[0], "cuda")

    assert [True, False, False, False, True, False, True] == [
        each is not None for each in card.places
    ]
    assert torch.device("cuda") == card.places[0].keywords["device"]


def test_two_models_where_there_is_room(card, located):
    """Both stay; of a third, the one used longest ago is given up."""
    card.size = 10 * sum(card.need.values())
    models = ModelCache()
    first, second = (models.take(each, "cuda") for each in located[:2])
    assert first is models.take(located[0], "cuda")

    models.take(located[2], "cuda")

    assert first is models.take(located[0], "cuda")
    assert second is not models.take(located[1], "cuda")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_long_task_holds(card, located, dtype):
    """Others come and go beside it, one at a time; afterwards it is one of them."""
    card.size = 10 * sum(card.need.values())
    models = ModelCache()
    with models.holding(located[0].spec, "cuda", dtype):
        held = models.take(located[0], "cuda", dtype)
        for each in (1, 2, 1):
            taken = models.take(located[each], "cuda")
            assert taken.located.spec == located[each].spec
            gone = weakref.ref(taken.module)
        if dtype == "float32":
            assert held is models.take(located[0], "cuda")
        del taken

    assert gone() is not None
    models.take(located[2], "cuda")
    models.take(located[0], "cuda")
    assert gone() is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_does_not_fit_beside_another(card, located, dtype):
    """The older model is given up before the next is loaded."""
    card.size = 1.2 * max(card.need[each.spec.name] for each in located[:2])
    models = ModelCache()
    models.take(located[0], "cuda")

    taken = models.take(located[1], "cuda", dtype)

    assert [card.size, card.size] == card.free_before
    assert located[1].spec == taken.located.spec


def test_what_does_not_fit_at_all(card, located):
    """It is refused in a sentence, after the older model was given up."""
    small, large = sorted(located, key=lambda each: card.need[each.spec.name])[::2]
    card.size = (card.need[small.spec.name] + card.need[large.spec.name]) / 2
    models = ModelCache()
    models.take(small, "cuda")

    with pytest.raises(ComputeFailed, match=r"needs .* of memory in float32, .* are free"):
        models.take(large, "cuda")

    assert [card.size, card.size] == card.free_before


def test_a_gpu_that_is_full_while_a_model_is_moved(model_dirs, monkeypatch):
    """The sentence is that of memory, not that of a damaged model."""

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(loading, "hooked", full)

    with pytest.raises(ComputeFailed, match="does not fit into memory: choose a smaller model"):
        loading.load(catalog.locate(str(model_dirs["gpt2"])), "cpu")
