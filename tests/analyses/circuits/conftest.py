"""Models that run with 64 bits, so that rounding hides nothing."""

import pytest
import torch

import poskernel_core as pk
from poskernel_core.forward.loaded import ModuleState


@pytest.fixture
def wide(monkeypatch):
    """Load a model with 64 bits, and give them to others; from then on, what says 32 gets 64."""
    usual = torch.get_default_dtype()

    def load(path, *others):
        model = pk.load(str(path), device="cpu")
        for module in (model.module, *others):
            module.double()
        model.state = ModuleState(model.module)
        torch.set_default_dtype(torch.float64)
        for name in ("float", "float32"):
            monkeypatch.setattr(torch, name, torch.float64)
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        return model

    yield load
    torch.set_default_dtype(usual)
