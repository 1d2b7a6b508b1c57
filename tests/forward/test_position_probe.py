"""Positions as the running model uses them: transformers' own patterns of one token repeated."""

import json
import shutil

import pytest
import torch

import poskernel_core as pk
from poskernel_core.common.errors import NotInModel
from poskernel_core.common.specs import RunSpec
from poskernel_core.forward import loading, rotation
from poskernel_core.models import catalog
from poskernel_core.models.positions import PositionUse, angles_by_length
from poskernel_core.storage.archive import export_model, import_archive
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import export_view
from tests.support.builders import hf_eager_attentions
from tests.support.builders.families import EVERY_MODEL, FULL, SLIDE, FamilyModel, rotary

HYBRID = {
    "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 20,
    "layer_types": ["attention"] * 3, "mamba_n_heads": 4, "mamba_d_head": 30, "mamba_d_state": 4,
    "mamba_n_groups": 1,
}  # fmt: skip
NOWHERE = ("no", "no", "no")
EVERYWHERE = ("rotary", "rotary", "rotary")
WINDOWED = {"sliding_window": 16}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing that was seen before is known."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))


def family(kind: str, **config: object) -> FamilyModel:
    return FamilyModel(kind, rotary(**config))


KNOWN: dict[str, tuple[FamilyModel, tuple[str, ...]]] = {
    "hybrid, rope": (
        family("granitemoehybrid", **HYBRID, position_embedding_type="rope"), EVERYWHERE
    ),
    "hybrid, none": (
        family("granitemoehybrid", **HYBRID, position_embedding_type="nope"), NOWHERE
    ),
    "full beside a window that no layer has": (
        family("exaone4", **WINDOWED, layer_types=[FULL] * 3), NOWHERE
    ),
    "full without a window": (
        family("exaone4", sliding_window=None, layer_types=[FULL] * 3), EVERYWHERE
    ),
    "windows everywhere": (
        family("cohere2", **WINDOWED, layer_types=[SLIDE] * 3, head_dim=10), EVERYWHERE
    ),
    "no windows": (
        family("cohere2", **WINDOWED, layer_types=[FULL] * 3, head_dim=10), NOWHERE
    ),
    "listed": (family("smollm3", no_rope_layers=[0, 1, 0]), ("no", "rotary", "no")),
    "ALiBi": (EVERY_MODEL["falcon-alibi"], ("ALiBi",) * 3),
    "in its own attention": (EVERY_MODEL["gptj"], EVERYWHERE),
    "partly": (EVERY_MODEL["phi"], EVERYWHERE),
    "compressed": (EVERY_MODEL["deepseek2"], EVERYWHERE),
    "two bases": (EVERY_MODEL["gemma4"], EVERYWHERE),
    "tempered queries": (EVERY_MODEL["llama4"], ("rotary", "no", "rotary")),
    "no ALiBi, as configured and not as run": (
        FamilyModel("mpt", EVERY_MODEL["mpt"].config | {"attn_config": {"alibi": False}}),
        ("ALiBi",) * 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_known_positions(tmp_path, name):
    """Uniform attention to one token repeated in exactly the layers without positions."""
    one, expected = KNOWN[name]
    path = one.build(tmp_path / "m")
    model = loading.load(catalog.locate(str(path)), "cpu")
    geometry = model.geometry

    assert model.located.positions == PositionUse(embedded=False, layers=expected)
    assert [kind != "no" for kind in expected] == [each.positions for each in geometry.layers]
    assert geometry.scheme == next((kind for kind in expected if kind != "no"), "no")
    tokens = torch.full((1, 13), 11)
    for kind, pattern in zip(expected, hf_eager_attentions(path, tokens), strict=True):
        last = pattern[0, :, -1]
        seen = last[last > 0].reshape(len(last), -1)
        assert (seen.max() - seen.min() < 1e-5) == (kind == "no")


@pytest.mark.parametrize("name", ["gpt2", "opt", "gpt_bigcode", "attn_only"])
def test_learned_positions(tmp_path, name):
    """They enter before the first layer: the layers themselves add none."""
    key = name if name in EVERY_MODEL else "gpt-bigcode"
    model = loading.load(catalog.locate(str(EVERY_MODEL[key].build(tmp_path / "m"))), "cpu")
    assert model.located.positions == PositionUse(
        embedded=True, layers=("no",) * model.geometry.n_layers
    )
    assert "learned" == model.geometry.scheme
    assert all(each.positions for each in model.geometry.layers)


@pytest.mark.parametrize("kind", ["no", "rotary"])
def test_layers_without_heads(tmp_path, kind):
    """A repeated token is no longer the same at every position behind a state-space layer."""
    config = HYBRID | {"layer_types": ["mamba", "attention", "attention"]}
    one = family("granitemoehybrid", **config, position_embedding_type={"rotary": "rope"}.get(kind))
    model = loading.load(catalog.locate(str(one.build(tmp_path / "m"))), "cpu")
    assert model.located.positions == PositionUse(embedded=False, layers=("no", kind, kind))
    assert kind == model.geometry.scheme


def test_keys_that_are_zero(tmp_path, monkeypatch):
    """Nothing can be seen in them: the configuration is believed."""
    path = EVERY_MODEL["llama"].build(tmp_path / "m")
    plain = rotation.attention_call

    def zero(module, layer, *given):
        call = plain(module, layer, *given)
        return call if layer else type(call)(0, call.q, 0 * call.k, call.v, call.scale)

    monkeypatch.setattr("poskernel_core.forward.loading.attention_call", zero)
    model = loading.load(catalog.locate(str(path)), "cpu")
    assert model.located.positions.layers == EVERYWHERE


@pytest.fixture
def probed(tmp_path, near_worker):
    """A model without positions that its configuration does not betray, and its directory."""
    path = KNOWN["full beside a window that no layer has"][0].build(tmp_path / "m")
    return str(path)


def ask(path: str, analysis: str = "sinks", **more: object):
    return pk.show(analysis, path, context=24, windows=10, **more)


def test_the_outcome_is_kept(probed, tmp_path, monkeypatch):
    """Expected from the configuration before the model is loaded; seen after, and by whoever gets
    the results, with the model or without. One that is damaged is ignored."""
    assert "rotary" == catalog.locate(probed).geometry.scheme
    assert "no" == ask(probed).provenance["position_scheme"]
    located = catalog.locate(probed)
    assert ("no", NOWHERE) == (located.geometry.scheme, located.positions.layers)
    with pytest.raises(NotInModel, match="has no positions"):
        ask(probed, "rotary-spectrum")
    export_model(Store(), located, tmp_path / "all.zip")
    export_view(Store(), located, tmp_path / "results.zip")

    (kept,) = (tmp_path / "cache" / "positions").iterdir()
    for text in ("{", "[]", '{"embedded": 1}', '{"embedded": true, "layers": ["no"]}'):
        kept.write_text(text)
        assert "rotary" == catalog.locate(probed).geometry.scheme
    import_archive(Store(tmp_path / "other"), tmp_path / "all.zip")
    assert "no" == catalog.locate(probed).geometry.scheme
    shutil.rmtree(probed)
    shutil.rmtree(kept.parent)
    monkeypatch.setenv("POSKERNEL_MODELS", str(tmp_path / "results.zip"))
    alone = catalog.locate(probed)
    assert alone.away
    assert ("no", NOWHERE) == (alone.geometry.scheme, alone.positions.layers)


def test_a_refusal_in_the_worker(probed):
    """A question about rotations, admitted by the configuration, finds none in the model."""
    with pytest.raises(NotInModel, match="got one with no positions"):
        ask(probed, "rotary-spectrum")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, False),
        ({"rope_parameters": {"rope_type": "yarn"}}, False),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, True),
        ({"rope_scaling": {"type": "su"}}, True),
        ({"text_config": {"rope_parameters": {FULL: {"rope_type": "longrope"}}}}, True),
    ],
)
def test_angles_by_length(config, expected):
    assert expected == angles_by_length(config)


def test_only_their_keys_change(tmp_path):
    """The results of such a model are computed again; those of others keep their keys."""
    for kind in ("default", "dynamic"):
        rope = {"rope_type": kind, "rope_theta": 500.0, "factor": 2.0}
        path = family("llama", rope_parameters=rope).build(tmp_path / kind)
        spec = catalog.locate(str(path)).spec
        described = json.loads(spec.model_dump_json())
        assert (kind == "dynamic") == ("angles" in described)
        run = RunSpec(model=spec, corpus="sample", context=8, positions=(3,))
        plain = spec.model_copy(update={"angles": None})
        same = run.model_copy(update={"model": plain}).key() == run.key()
        assert same == (kind == "default")
