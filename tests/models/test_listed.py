"""The list of models, and what has to be downloaded before one can run."""

from dataclasses import replace
from pathlib import Path

from poskernel_core.models import catalog


def test_own_models_are_first(monkeypatch):
    """In the order that the host gives, each once, with what is known of it."""
    usual = [entry.name for entry in catalog.entries()]
    monkeypatch.setenv("POSKERNEL_MODELS", "/srv/mine, gpt2, owner/other,")
    names = [entry.name for entry in catalog.entries()]
    assert names[:3] == ["/srv/mine", "gpt2", "owner/other"]
    assert names[3:] == [name for name in usual if name != "gpt2"]
    assert catalog.entries()[1].size == "124 M"


def test_what_is_missing_is_downloaded(monkeypatch):
    local = catalog.locate("demo-attn-2l")
    spec = local.spec.model_copy(update={"name": "owner/model", "fingerprint": "c0ffee"})
    hub = replace(local, spec=spec, directory=None)
    sizes = {"a.safetensors": 700, "b.safetensors": 50}
    monkeypatch.setattr(catalog, "weight_sizes", lambda *asked: sizes)
    here = {"b.safetensors": Path("here")}
    monkeypatch.setattr(catalog, "file_here", lambda name, file, commit: here.get(file))
    assert catalog.download_bytes(hub) == 700
    here["a.safetensors"] = Path("here")
    assert catalog.download_bytes(hub) == 0
    monkeypatch.setattr(catalog, "file_here", lambda *asked: None)
    assert catalog.download_bytes(hub) == 750
    assert catalog.download_bytes(local) == 0
    assert catalog.download_bytes(replace(hub, away="install it")) == 0
