"""Which models stay in memory: a stand-in for a GPU tells how much of it is free."""

import gc
import weakref
from types import SimpleNamespace

import psutil
import pytest
import torch

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.forward import loading, memory
from poskernel_core.models import catalog
from poskernel_core.models.weights import count_numbers
from poskernel_core.passes import worker_context
from poskernel_core.passes.worker_context import ModelCache

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
    gc.disable()  # as if nobody cleared away by chance
    yield card
    gc.enable()


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
