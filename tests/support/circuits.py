"""Sets of pairs for tests of circuits, and what plain transformers gives with heads exchanged."""

import json

import numpy as np
import torch

from poskernel_core.analyses.base import ExperimentContext
from tests.support.builders import START, hf_eager_model
from tests.support.oracles_kernel_only import Plain

ANY = 1
"""A token behind the prompt, so that its last position is among those that are predicted from."""

FAR = 99.0


def written(ids):
    return " ".join(map(str, ids))


def table(rows):
    """A set as a table, of prompts and answers that are numbers of tokens."""
    names = "clean", "changed", "answer", "other_answer", "template"
    text = [[written(each) if isinstance(each, tuple | list) else str(each) for each in row]
            for row in rows]  # fmt: skip
    return "\n".join(json.dumps(dict(zip(names, row, strict=False))) for row in text)


def subject_of(model, windows, **more):
    """What an experiment gets: prompts are numbers of tokens."""
    return ExperimentContext(
        model, np.asarray(windows), [], lambda ids: [str(each) for each in ids], True,
        single_id=int, encode=lambda text: [int(each) for each in text.split()], **more,
    )  # fmt: skip


def goes_on(perform):
    """A run that has what another one saved half-way takes that over, and gives the same answer.

    ``perform`` gets what a context has beside its model; what is saved of pairs that were not read
    is of no account.
    """
    saved = []

    def save(arrays):
        saved.append({name: array.copy() for name, array in arrays.items()})

    whole = perform({"save": save})
    half = saved[len(saved) // 2]
    read, kept = half["read"], half.keys() - {"read", "metrics"}
    assert 0 < read.sum() < len(read)
    for name in kept:
        half[name][~read] = np.pi
    again = perform({"saved": half})
    for part in ("values", "errors", "biases"):
        for name, array in getattr(whole, part).items():
            np.testing.assert_array_equal(array, getattr(again, part)[name], name)
    for name in kept:
        half[name][read] *= 2
    spoiled = perform({"saved": half}).values
    assert any(
        not np.array_equal(array, spoiled[name], equal_nan=True)
        for name, array in whole.values.items()
    )


class Exchanged(Plain):
    """A plain model that runs one prompt, with the outputs or patterns of heads exchanged."""

    def margin(self, ids, answers, fixed=()):
        """The answer's logit less the other's, after a prompt without its start token."""
        log_p = self.log_p(np.array([[START, *ids, ANY]]), fixed)
        return log_p[0, -1, answers[0]] - log_p[0, -1, answers[1]]

    def outputs(self, ids):
        """The output of every head on a prompt, `[1, pos, d]`."""
        with torch.no_grad():
            self.margin(ids, (0, 1))
        return {(layer, head): z[..., head * self.width : (head + 1) * self.width]
                for layer, (_, z) in self.seen.items() for head in range(self.count)}  # fmt: skip

    def carried(self, clean, changed, answers):
        """First-order estimates of what heads carry, with the mean slope of both prompts."""
        slopes, outputs = [], []
        for ids in (clean, changed):
            self.leaves = []
            number = self.margin(ids, answers)
            leaves, self.leaves = self.leaves, None
            slopes.append(torch.autograd.grad(number, leaves))
            outputs.append([self.seen[layer][1] for layer in range(len(leaves))])
        total = [(a + b) / 2 * (x - y) for a, b, x, y in zip(*slopes, *outputs, strict=True)]
        return np.array([[float(part.sum()) for part in each.chunk(self.count, -1)]
                         for each in total])  # fmt: skip


def random_rows(path, lengths=(7, 5), count=13, seed=3, nats=FAR):
    """Pairs of random prompts that differ in two tokens, and answers that tell them apart.

    They do so by about so many nats, or as far as they can.
    """
    random, plain, rows = np.random.default_rng(seed), Exchanged(path), []
    for number in range(count):
        clean = random.integers(1, 293, lengths[number % len(lengths)]).tolist()
        changed = [*clean]
        changed[1], changed[-2] = (int(each) for each in random.integers(1, 293, 2))
        with torch.no_grad():
            one, two = (
                plain.log_p(np.array([[START, *ids, ANY]]))[0, -1] for ids in (clean, changed)
            )
        apart = one - two
        answer = int(apart.argmax() if nats == FAR else apart.argsort()[len(apart) // 2])
        other = int((apart[answer] - apart - nats).abs().argmin())
        rows.append((clean, changed, answer, other, f"t{number % 11}"))
    return rows


def induction_rows(count=14):
    """A B . C D . A, and C B . A D . A: what follows A differs by what stands before B and D."""
    random, rows = np.random.default_rng(5), []
    for number in range(count):
        a, b, c, d, x, y = random.choice(np.arange(1, 292), 6, replace=False).tolist()
        rows.append(([a, b, x, c, d, y, a], [c, b, x, a, d, y, a], b, d, f"t{number}"))
    return rows


class Fed:
    """A plain model in which one input of one head is computed from another stream.

    Heads that share keys and values get copies of them.
    """

    def __init__(self, path):
        self.model = ungrouped(hf_eager_model(path)).double()
        body = self.model.base_model
        self.gpt2 = hasattr(body, "h")
        self.layers = body.h if self.gpt2 else body.layers
        config = self.model.config
        self.count = config.num_attention_heads
        self.width = self.outs(0).weight.shape[0 if self.gpt2 else 1] // self.count
        self.fed = None
        for at, layer in enumerate(self.layers):
            layer.register_forward_pre_hook(
                lambda _m, args, at=at: self.kept("stream", at, args[0])
            )
            layer.mlp.register_forward_hook(lambda _m, _a, out, at=at: self.kept("mlp", at, out))
            self.outs(at).register_forward_pre_hook(
                lambda _m, args, at=at: self.kept("z", at, args[0])
            )
            for side in range(3):
                self.into(at, side).register_forward_hook(
                    lambda _m, _a, out, at=at, side=side: self.feed(at, side, out)
                )

    def outs(self, layer):
        block = self.layers[layer]
        return block.attn.c_proj if self.gpt2 else block.self_attn.o_proj

    def into(self, layer, side):
        block = self.layers[layer]
        if self.gpt2:
            return block.attn.c_attn
        return getattr(block.self_attn, f"{'qkv'[side]}_proj")

    def norm(self, layer):
        block = self.layers[layer]
        return block.ln_1 if self.gpt2 else block.input_layernorm

    def kept(self, what, layer, x):
        self.seen[what, layer] = x

    def place(self, head, side):
        first = (side * self.count * self.gpt2 + head) * self.width
        return slice(first, first + self.width)

    def feed(self, layer, side, out):
        if self.fed is None or self.fed[0][0] != layer or self.fed[1] != side:
            return out
        (_, head), _, stream = self.fed
        self.fed, out, place = None, out.clone(), self.place(head, side)
        out[..., place] = self.into(layer, side)(self.norm(layer)(stream))[..., place]
        return out

    @torch.no_grad()
    def margin(self, ids, answers, fed=None):
        self.seen, self.fed = {}, fed
        logits = self.model(torch.tensor([[START, *ids]]), use_cache=False).logits[0, -1]
        return float(logits[answers[0]] - logits[answers[1]])

    def written(self, ids, sender, layer):
        """What a sender adds to the stream on a prompt; None: all of the stream before a layer."""
        self.margin(ids, (0, 1))
        if sender is None or sender == "embeddings":
            return self.seen["stream", layer if sender is None else 0]
        if sender.startswith("MLP"):
            return self.seen["mlp", int(sender[4:])]
        at, head = (int(part) for part in sender[1:].split("H"))
        place, weight = self.place(head, 0), self.outs(at).weight
        weight = weight[place] if self.gpt2 else weight[:, place].T
        return self.seen["z", at][..., place] @ weight

    def change(self, base, other, layer, sender):
        return self.written(other, sender, layer) - self.written(base, sender, layer)

    def edge(self, base, other, answers, into, side, sender, factor=1.0):
        """The change of the margin of a prompt along one edge, or with a part of its change."""
        step = factor * self.change(base, other, into[0], sender)
        before = self.margin(base, answers)
        stream = self.seen["stream", into[0]] + step
        return self.margin(base, answers, (into, side, stream)) - before

    def slope(self, base, other, answers, into, side, sender, step=1e-4):
        """Its estimate: the mean of the derivatives at both prompts."""
        moved = [
            self.edge(*ids, answers, into, side, sender, factor * step)
            for ids, way in (((base, other), 1), ((other, base), -1))
            for factor in (way, -way)
        ]
        return (moved[0] - moved[1] + moved[2] - moved[3]) / (4 * step)


def ungrouped(model):
    """The same model in which every head has keys and values of its own."""
    config = model.config
    shared = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    times = config.num_attention_heads // shared
    if times > 1:
        with torch.no_grad():
            for layer in model.base_model.layers:
                attention = layer.self_attn
                attention.num_key_value_groups = 1
                for part in (attention.k_proj, attention.v_proj):
                    rows = part.weight.view(shared, -1, part.weight.shape[1])
                    rows = rows.repeat_interleave(times, dim=0).reshape(-1, part.weight.shape[1])
                    part.weight, part.out_features = torch.nn.Parameter(rows), len(rows)
                    if part.bias is not None:
                        bias = part.bias.view(shared, -1).repeat_interleave(times, dim=0)
                        part.bias = torch.nn.Parameter(bias.reshape(-1))
    return model
