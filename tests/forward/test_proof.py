"""The proof at loading sees the end of windows and chunks that are longer than its usual tokens."""

from dataclasses import replace

import pytest

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward import loading, proof
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.models import catalog
from tests.support import Made
from tests.support.builders.families import EVERY_MODEL, SLIDE, FamilyModel, rotary

LONG = 47
"""Longer than the tokens of the proof of a model without windows."""
MODELS = {
    "window": FamilyModel(
        "qwen2",
        rotary(sliding_window=LONG, layer_types=[SLIDE] * 3, use_sliding_window=True,
               max_position_embeddings=97),
        [LONG] * 3,
    ),
    "chunk": replace(
        EVERY_MODEL["llama4"],
        config=EVERY_MODEL["llama4"].config
        | {"attention_chunk_size": LONG, "max_position_embeddings": 97},
    ),
}  # fmt: skip
BOTH = pytest.mark.parametrize("field", MODELS)
OFF_BY_ONE = pytest.mark.parametrize("off", [-1, 1])


@pytest.fixture(scope="module")
def located(tmp_path_factory):
    root = tmp_path_factory.mktemp("windows")
    return Made(lambda name: catalog.locate(str(MODELS[name].build(root / name))))


@pytest.fixture
def misread(monkeypatch):
    """Let our attention see another window than the model's."""

    def so(field, off):
        class Misread(AttentionCall):
            @property
            def rule(self):
                rule, length = super().rule, getattr(self, field)
                return replace(rule, **{field: length and length + off})

        monkeypatch.setattr("poskernel_core.forward.hooks.AttentionCall", Misread)

    return so


@BOTH
def test_long_windows_are_proved(located, field):
    model = loading.load(located[field], "cpu")
    assert proof.difference(model).largest < 1e-5
    assert proof.difference(model, proof.made_up(model, 97)).largest < 1e-5


@BOTH
@OFF_BY_ONE
def test_a_window_that_our_attention_misreads_by_one(located, misread, monkeypatch, field, off):
    misread(field, off)
    with pytest.raises(UnsupportedModel, match="patterns differ"):
        loading.load(located[field], "cpu")
    monkeypatch.setattr(proof, "MAX_WINDOW", 46)  # beyond the bound, nothing is seen
    loading.load(located[field], "cpu")


@BOTH
@OFF_BY_ONE
def test_a_window_that_is_read_wrongly_from_the_configuration(located, field, off):
    geometry = located[field].geometry
    layers = tuple(replace(each, window=each.window and each.window + off)
                   for each in geometry.layers)  # fmt: skip
    wrong = replace(located[field], geometry=replace(geometry, layers=layers))
    with pytest.raises(UnsupportedModel, match=f"window of {LONG + off} .* has one of {LONG} "):
        loading.load(wrong, "cpu")
