"""Settings of torch around a lab: its numbers are the same, and the settings are as before."""

import contextlib
import copy
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import poskernel_core as pk
from poskernel_core.common.errors import PosKernelError
from poskernel_core.engine.engine import close_shared
from poskernel_core.forward.precision import neutral
from poskernel_core.objects.twin import twin_of
from tests.objects.test_training import MEASURE, toy

pytestmark = pytest.mark.usefixtures("near_worker", "unchecked")


@contextlib.contextmanager
def chosen(choose, value, before):
    choose(value)
    try:
        yield
    finally:
        choose(before)


def default_dtype(dtype):
    return lambda: chosen(torch.set_default_dtype, dtype, torch.float32)


def default_device(device):
    return lambda: chosen(torch.set_default_device, device, None)


DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu", "xla")


@contextlib.contextmanager
def autocast_everywhere():
    """As ``torch.autocast`` sets it, which refuses devices that are not here."""
    with contextlib.ExitStack() as stack:
        for device in DEVICES:
            enable = partial(torch.set_autocast_enabled, device)
            stack.enter_context(chosen(enable, True, False))
        yield


@contextlib.contextmanager
def products(choose):
    """Settings of matrix products, by torch's older or newer name of them."""
    owners = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    before = [own.fp32_precision for own in owners]
    choose()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        for own, value in zip(owners, before, strict=True):
            own.fp32_precision = value


def newer():
    """After this the older setting cannot be read."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"


SETTINGS = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast everywhere": autocast_everywhere,
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    **{str(dtype): default_dtype(dtype)
       for dtype in (torch.bfloat16, torch.float16, torch.float64)},
    "default device": default_device("meta"),
    "a device's block": lambda: torch.device("meta"),
    "products": lambda: products(lambda: torch.set_float32_matmul_precision("medium")),
    "products of a device": lambda: products(newer),
    "kernels": lambda: sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
}  # fmt: skip


def settings_now():
    """All settings that may change a number; the older one of products may be unreadable."""
    backends = torch.backends
    try:
        products = torch.get_float32_matmul_precision()
    except RuntimeError:
        products = "not readable"
    return (
        [torch.is_autocast_enabled(device) for device in DEVICES],
        torch.get_autocast_dtype("cpu"),
        torch.is_inference_mode_enabled(), torch.is_grad_enabled(),
        torch.get_default_dtype(), str(torch.get_default_device()), torch.empty(1).device,
        products, backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision,
        backends.cuda.flash_sdp_enabled(), backends.cuda.math_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.cudnn_sdp_enabled(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """Ten windows of tokens, in a file."""
    file = tmp_path_factory.mktemp("windows") / "random.npy"
    np.save(file, np.random.default_rng(0).integers(53, size=(10, 23)))
    return file


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Gives the default store a new, empty directory."""
    counted = iter(range(99))
    yield lambda: monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / str(next(counted))))
    close_shared()


def doors(model, windows):
    """The identity, and what a lab answers and a training log measures."""
    lab = pk.attach(model)
    run = {"windows": 10, "context": 23, "corpus": windows, "start_token": False}
    log = pk.TrainingLog("run", questions=("previous-token",), context=23)
    log(model, 1)
    logged = pk.show("over-training", "run", params={"measure": MEASURE})
    return lab.model.fingerprint, [lab.show("etc", **run), logged]


def compare(found, expected):
    assert found[0] == expected[0]
    for here, there in zip(found[1], expected[1], strict=True):
        assert here.values.keys() == there.values.keys()
        for name, value in there.values.items():
            np.testing.assert_allclose(here.values[name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_numbers_and_the_settings_as_before(windows, fresh, name):
    model, outside = toy(), settings_now()
    fresh()
    expected = doors(model, windows)
    fresh()
    with SETTINGS[name]():
        before = settings_now()
        assert before != outside
        found = doors(model, windows)
        assert before == settings_now()
    assert outside == settings_now()
    compare(found, expected)


def test_the_settings_as_before_when_it_fails():
    """Of a point that ends in an error, and of a model that is refused."""
    with contextlib.ExitStack() as stack:
        for name in ("autocast", "inference", "torch.bfloat16", "default device", "products"):
            stack.enter_context(SETTINGS[name]())
        before = settings_now()
        with pytest.raises(PosKernelError):
            pk.attach(torch.nn.Linear(2, 2, device="cpu"))
        assert before == settings_now()
        with pytest.raises(ZeroDivisionError), neutral():
            1 / 0  # noqa: B018
        assert before == settings_now()


def test_two_threads_share_what_is_set_for_the_process():
    """The first to begin ends first: the caller's come back when nobody is left."""
    begun, left = threading.Event(), threading.Event()

    def first():
        with neutral():
            begun.set()
            left.wait(60)

    with SETTINGS["torch.float64"](), SETTINGS["products"]():
        before, thread = settings_now(), threading.Thread(target=first)
        thread.start()
        assert begun.wait(60)
        with neutral():
            left.set()
            thread.join()
            assert torch.get_default_dtype() == torch.float32
            assert "highest" == torch.get_float32_matmul_precision()
        assert before == settings_now()


def test_a_model_that_was_made_in_inference_mode(windows, fresh):
    """Of the same memory, whatever is asked, gradients too."""
    run = {"windows": 10, "context": 23, "corpus": windows, "start_token": False}
    model, found = toy(), []
    with torch.inference_mode():
        made = copy.deepcopy(model)
    assert all(each.is_inference() for each in made.parameters())
    for each in (model, made):
        fresh()
        lab = pk.attach(each)
        answers = [lab.show(name, **run) for name in ("etc", "kernel-only-cost")]
        found.append((lab.model.fingerprint, answers))
    compare(*found)
    twin, own = twin_of(made).lm_head.weight, made.lm_head.weight
    assert (twin.data_ptr(), False) == (own.data_ptr(), twin.is_inference())
