"""What heads write, once more: plain transformers, and plain loops over their weights."""

import numpy as np
import torch

from tests.support.builders import hf_eager_model


def double(x):
    return x.detach().double().numpy()


class Gpt2:
    """The parts of a plain GPT-2 that copying needs."""

    def __init__(self, model):
        self.body, self.head = model.transformer, model.lm_head
        self.blocks, self.embedding = self.body.h, double(self.body.wte.weight)
        self.first = [block.ln_1 for block in self.blocks]
        self.final = (double(self.body.ln_f.weight), True)
        self.heads = model.config.n_head

    def norm(self, layer):
        ln = self.first[layer]
        return double(ln.weight), double(ln.bias), True

    def values(self, layer, x):
        attention = self.blocks[layer].attn.c_attn
        whole = x @ double(attention.weight) + double(attention.bias)
        return np.split(whole[..., 2 * x.shape[-1] :], self.heads, axis=-1)

    def outs(self, layer):
        return np.split(double(self.blocks[layer].attn.c_proj.weight), self.heads, axis=0)


class Gemma2:
    """The same of Gemma 2: the embedding's factor, grouped heads, a norm behind the block."""

    def __init__(self, model):
        self.body, self.head, config = model.model, model.lm_head, model.config
        self.blocks = self.body.layers
        self.embedding = double(self.body.embed_tokens.weight) * config.hidden_size**0.5
        self.first = [block.input_layernorm for block in self.blocks]
        self.final = (1 + double(self.body.norm.weight), False)
        self.heads, self.keys = config.num_attention_heads, config.num_key_value_heads

    def norm(self, layer):
        return 1 + double(self.first[layer].weight), 0.0, False

    def values(self, layer, x):
        whole = x @ double(self.blocks[layer].self_attn.v_proj.weight).T
        own = np.split(whole, self.keys, axis=-1)
        return [own[head * self.keys // self.heads] for head in range(self.heads)]

    def outs(self, layer):
        block = self.blocks[layer]
        behind = 1 + double(block.post_attention_layernorm.weight)
        whole = double(block.self_attn.o_proj.weight).T * behind
        return np.split(whole, self.heads, axis=0)


def centred(x, really=True):
    return x - x.mean(axis=-1, keepdims=True) if really else x


@torch.no_grad()
def copying(path, kind, windows, ids):
    """All three scores `[layer, head]` of some tokens, by one matrix over the vocabulary a head."""
    model = hf_eager_model(path)
    own, scales, behind = kind(model), {}, []

    def keep(at):
        def hook(_module, args, _out):
            x = centred(double(args[0]), own.norm(at)[2])
            eps = getattr(own.first[at], "eps", None) or own.first[at].variance_epsilon
            scales[at] = float(
                ((x**2).mean(-1) + eps) ** -0.5 @ np.ones(x.shape[1]) @ np.ones(len(x))
            )
            scales[at] /= x.shape[0] * x.shape[1]

        return hook

    for at, norm in enumerate(own.first):
        norm.register_forward_hook(keep(at))
    own.blocks[0].register_forward_hook(
        lambda _m, _args, out: behind.append(double(out[0] if isinstance(out, tuple) else out))
    )
    model(torch.from_numpy(windows), use_cache=False)
    places = [np.argwhere(windows == token) for token in ids]
    later = np.array([np.mean([behind[0][tuple(at)] for at in each], axis=0) for each in places])
    reads = double(own.head.weight).T
    reads = reads - reads.mean(axis=1, keepdims=True)
    shape = len(own.blocks), own.heads
    found = {name: np.full(shape, np.nan) for name in ("first", "second", "eigenvalues")}
    for layer, head in np.ndindex(shape):
        gain, bias, centre = own.norm(layer)
        out = centred(own.outs(layer)[head], own.final[1]) * own.final[0] @ reads

        def share(x, layer=layer, head=head, gain=gain, bias=bias, centre=centre, out=out):
            inside = scales[layer] * gain * centred(x, centre) + bias
            logits = own.values(layer, inside)[head] @ out
            ranks = [sum(row >= row[token]) for row, token in zip(logits, ids, strict=True)]
            return np.mean(np.array(ranks) <= 10)

        found["first"][layer, head] = share(own.embedding[ids])
        if layer:
            found["second"][layer, head] = share(later)
        plain = gain * centred(own.embedding, centre)
        nothing = own.values(layer, 0 * plain[:1])[head]
        whole = (own.values(layer, plain)[head] - nothing) @ out
        values = np.linalg.eigvals(whole)
        found["eigenvalues"][layer, head] = values.sum().real / np.abs(values).sum()
    return found
