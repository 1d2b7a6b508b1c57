"""The identity of objects that their caller has changed: whatever changes a number changes it."""

import copy
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

from poskernel_core.forward.identity import identity, own_hooks

TOKENS = torch.arange(53)[None]
strength = 1.5
vector = torch.zeros(32)
table = {0: torch.zeros(32)}
kept = []


def of(model):
    return identity(model, model.config)


@pytest.fixture(scope="module")
def base():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=131,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Doubled(LlamaMLP):
    def forward(self, x):
        return 2 * super().forward(x)


class Halved(LlamaMLP):
    def forward(self, x):
        return 0.5 * super().forward(x)


Halved.__qualname__ = Doubled.__qualname__  # as a cell that is run again defines it


def steers(module, args, out):
    return out + strength * vector


def reads(module, args, out):
    return out + table[0]


class Steering:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, module, args, out):
        return out * self.factor

    def method(self, module, args, out):
        return out * self.factor


def late(module, args, out, first):
    """Act where the tokens that are looked at have ended."""
    return torch.cat([out[:, :first], 2 * out[:, first:]], dim=1)


def hooked(hook):
    return lambda model: model.model.layers[0].mlp.register_forward_hook(hook)


def with_globals(factor, direction):
    def change(model):
        globals().update(strength=factor, vector=direction)
        model.model.layers[0].mlp.register_forward_hook(steers)

    return change


def with_table(model, value):
    table[0] = torch.full((32,), value)
    model.model.layers[0].mlp.register_forward_hook(reads)


def replaced(model, factor):
    part = model.model.layers[1].mlp
    plain = part.forward
    part.forward = lambda x: plain(x) * factor


def closing(factor):
    return lambda module, args, out: out * factor


CHANGES = {
    "angles": lambda m: m.model.rotary_emb.inv_freq.mul_(0.5),
    "other angles": lambda m: m.model.rotary_emb.inv_freq.mul_(0.25),
    "scale": lambda m: setattr(m.model.layers[1].self_attn, "scaling", 0.1),
    "epsilon": lambda m: setattr(m.model.norm, "variance_epsilon", 0.5),
    "function": lambda m: setattr(m.model.layers[0].mlp, "act_fn", nn.ReLU()),
    "class": lambda m: setattr(m.model.layers[0].mlp, "__class__", Doubled),
    "its code": lambda m: setattr(m.model.layers[0].mlp, "__class__", Halved),
    "half": lambda m: parametrize.register_parametrization(m.lm_head, "weight", Scaled(0.5)),
    "double": lambda m: parametrize.register_parametrization(m.lm_head, "weight", Scaled(2.0)),
    "closure": hooked(closing(0.5)),
    "another closure": hooked(closing(3.0)),
    "code": hooked(lambda module, args, out: out + 1),
    "other code": hooked(lambda module, args, out: out - 1),
    "default": hooked(lambda module, args, out, factor=4: out * factor),
    "another default": hooked(lambda module, args, out, factor=5: out * factor),
    "partial": hooked(partial(late, first=130)),
    "another partial": hooked(partial(late, first=129)),
    "object": hooked(Steering(6.0)),
    "another object": hooked(Steering(7.0)),
    "method": hooked(Steering(6.0).method),
    "another method": hooked(Steering(7.0).method),
    "globals": with_globals(1.5, torch.ones(32)),
    "a number": with_globals(2.5, torch.ones(32)),
    "a vector": with_globals(1.5, torch.arange(32.0)),
    "table": partial(with_table, value=1.0),
    "another table": partial(with_table, value=2.0),
    "forward": partial(replaced, factor=2.0),
    "another forward": partial(replaced, factor=3.0),
}


@torch.no_grad()
def test_whatever_is_changed_makes_another_model(base):
    """Each has an identity of its own, and the same one the next time."""
    found = {"base": of(base)}
    for name, change in CHANGES.items():
        model = copy.deepcopy(base)
        change(model)
        found[name] = of(model)
        assert found[name] == of(model), name
        again = copy.deepcopy(base)
        change(again)
        assert found[name] == of(again), name
    assert len(found) == len(set(found.values())), found


@torch.no_grad()
def test_hooks_on_every_module(base):
    before = of(base)
    found = set()
    for factor in (0.5, 3.0):
        with nn.modules.module.register_module_forward_hook(closing(factor)):
            found.add(of(base))
            assert [f"{__name__}.closing.<locals>.<lambda> on every module"] == own_hooks(base)
    assert 3 == len({before, *found})
    assert before == of(base)


def test_code_is_told_alike_in_every_process():
    script = (
        "from poskernel_core.forward.written import told\n"
        "print(told(lambda name: name in {'query', 'key', 'value', 'output', 'gate', 'up'}))"
    )
    said = {
        subprocess.check_output(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": s}
        )
        for s in "1234"
    }
    assert 1 == len(said)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
def test_what_changes_no_number_leaves_the_identity(base):
    """Modes, running, angles of another device, and a hook that only looks."""
    model = copy.deepcopy(base)
    before = of(model)
    model.train()
    model.gradient_checkpointing_enable()
    model(TOKENS)
    model.model.rotary_emb.inv_freq.mul_(1 + 1e-7)
    assert before == of(model)
    model.model.layers[0].mlp.register_forward_hook(
        lambda module, args, out: kept.append(out.detach())
    )
    looking = of(model)
    model(TOKENS)
    assert before != looking
    assert looking == of(model)
    assert model.training


@torch.no_grad()
def test_angles_by_length_are_those_of_the_first_text():
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=44, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=29,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    before, angles = of(model), model.model.rotary_emb.inv_freq.clone()
    model(TOKENS)
    assert not torch.equal(angles, model.model.rotary_emb.inv_freq)
    assert before == of(model)


@pytest.mark.parametrize("field", ["output_multiplier", "output_gate_type"])
def test_fields_of_a_configuration_that_begin_like_others(base, field):
    model = copy.deepcopy(base)
    before = of(model)
    setattr(model.config, field, 3)
    assert before != of(model)
    again = copy.deepcopy(base)
    again.config.output_hidden_states = True
    assert before == of(again)
