"""Heads that attend by position alone, once more: plain transformers, hooks and plain loops."""

import json

import numpy as np
import torch

from tests.support import oracles
from tests.support.builders import hf_eager_model
from tests.support.truth import heads_of, truth_of

VALUES = (".v_proj", ".c_attn")
OUT = (".o_proj", ".out_proj", "attn.c_proj")


class Plain:
    """A plain model: its loss with the outputs of some heads put in the place of their own."""

    def __init__(self, path):
        self.model = hf_eager_model(path)
        config = json.loads((path / "config.json").read_text())
        count = config.get("num_attention_heads") or config.get("num_heads") or config["n_head"]
        self.count, self.values, self.fixed, self.leaves = count, [], {}, None
        out = [m for name, m in self.model.named_modules() if name.endswith(OUT)]
        into = [m for name, m in self.model.named_modules() if name.endswith(VALUES)]
        for layer, (last, first) in enumerate(zip(out, into, strict=True)):
            first.register_forward_hook(lambda *given: self.values.append(given[-1]))
            last.register_forward_pre_hook(lambda _m, args, at=layer: (self._changed(at, args[0]),))

    def _heads(self, x, joined):
        """`[text, pos, head * d]` of values -> `[text, head, pos, d]`, shared ones repeated."""
        v = torch.from_numpy(heads_of((x.chunk(3, -1)[2] if joined else x).detach(), self.width))
        return v.repeat_interleave(self.count // v.shape[1], 1).float()

    def _changed(self, layer, z):
        self.width, z = z.shape[-1] // self.count, z.clone()
        joined = self.values[-1].shape[-1] == 3 * z.shape[-1]
        self.seen[layer] = self._heads(self.values[-1], joined), z.detach()
        for (at, head), row in self.fixed.items():
            if at == layer:
                own = slice(head * self.width, (head + 1) * self.width)
                v = self.seen[layer][0][:, head]
                z[..., own] = row @ v if row.ndim == 2 else row
        if self.leaves is not None:
            self.leaves.append(torch.zeros_like(z, requires_grad=True))
            z = z + self.leaves[-1]
        return z

    def log_p(self, windows, fixed=()):
        """Log-probabilities of the next tokens, `[text, pos, token]`."""
        self.fixed, self.values, self.seen = dict(fixed), [], {}
        self.fixed = {cell: torch.tensor(row).float() for cell, row in self.fixed.items()}
        found = self.model(torch.from_numpy(windows), use_cache=False, output_attentions=True)
        logits, self.attentions = found.logits, found.attentions
        return logits[:, :-1].log_softmax(-1)

    def losses(self, windows, fixed=()):
        """`-log p` of each token but the first, `[text, pos]`."""
        with torch.no_grad():
            log_p = self.log_p(windows, fixed)
        right = torch.from_numpy(windows)[:, 1:, None]
        return -log_p.gather(-1, right)[..., 0].double().numpy()

    def loss(self, windows, fixed=()):
        return self.losses(windows, fixed).mean(1)

    def induction(self, start, period):
        """What each head gave the token after the earlier copy, `[text, layer, head]`."""
        found = [
            [[np.mean([attention[text, head, start + period + j, start + j + 1].item()
                       for j in range(period)])
              for head in range(self.count)] for attention in self.attentions]
            for text in range(len(self.attentions[0]))
        ]  # fmt: skip
        return np.array(found)

    def outputs(self, windows):
        """Each layer's mean outputs over texts and positions, `[layer][head, d]`."""
        self.loss(windows)
        every = [self.seen[layer][1].double().numpy() for layer in sorted(self.seen)]
        return [z.reshape(-1, self.count, z.shape[-1] // self.count).mean(0) for z in every]


def rows(path, windows, skip, scale):
    """What takes a head's place by its name: patterns `[layer][head][query][key]`."""
    truth, found = truth_of(path, windows), {"kernel": [], "mean pattern": [], "uniform": []}
    length = windows.shape[1]
    for layer, attention in enumerate(truth.attentions):
        heads, observed = attention.shape[1], attention.astype(float).mean(axis=0)
        keys = truth.keys[layer].mean(axis=0)
        kernel, flat = observed.copy(), np.zeros((heads, length, length))
        for head, n in np.ndindex(heads, length):
            first = int(np.argmax(attention[0, head, n] > 0))
            flat[head, n, first : n + 1] = 1 / (n + 1 - first)
            if n >= skip:
                queries = truth.queries[layer][:, head, n].tolist()
                mean_keys = keys[head * len(keys) // heads].tolist()
                given = queries, mean_keys, scale[layer], n, skip, n + 1 - first
                shares = np.array(oracles.mean_kernel(*given))[skip:]
                kernel[head, n, skip:] = shares * observed[head, n, skip:].sum()
        for name, each in zip(found, (kernel, observed, flat), strict=True):
            found[name].append(each)
    return found


def estimated(plain, windows, patterns, draws):
    """The estimate of every head's cost with these patterns, `[layer, head]`; one text at a time.

    Random signs are drawn for all texts at once.
    """
    plain.leaves = []
    log_p = plain.log_p(windows)
    leaves, plain.leaves = plain.leaves, None
    texts, count = log_p.shape[:2]
    right = torch.from_numpy(windows)[:, 1:, None]
    generator = torch.Generator().manual_seed(0)
    goals = [-log_p.gather(-1, right).sum() / count]
    for _ in range(draws):
        signs = torch.randint(2, log_p.shape, generator=generator, dtype=torch.int8) * 2 - 1
        goals.append((signs * log_p.detach().exp().sqrt() * log_p).sum())
    found = np.zeros((len(leaves), plain.count))
    for draw, goal in enumerate(goals):
        slopes = torch.autograd.grad(goal, leaves, retain_graph=True)
        for layer, head in np.ndindex(found.shape):
            values, z = plain.seen[layer]
            own = slice(head * plain.width, (head + 1) * plain.width)
            row = torch.tensor(patterns[layer][head]).float()
            for text in range(texts):
                change = row @ values[text, head] - z[text][:, own]
                each = (slopes[layer][text][:, own] * change).sum(-1).double().numpy()
                inner = each.sum()
                square = (each**2).sum() if layer == len(leaves) - 1 else inner**2
                found[layer, head] += (square / (2 * count * draws) if draw else inner) / texts
    return found
