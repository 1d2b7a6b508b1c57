"""Components of queries and keys, and sources of position: plain transformers, and loops.

The parts of the stream are caught by hooks on the modules' outputs; weights are read from the state
and applied in float64. No code is shared with `poskernel_core`.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import torch

from tests.support import oracles
from tests.support.builders import hf_eager_model
from tests.support.truth import heads_of, rotated, turning

# where a kind of model keeps its parts: embedding, positions, output projection, MLP, norm
PLACES = {
    "gpt2": ("transformer.wte", "transformer.wpe", "transformer.h.{}.attn.c_proj",
             "transformer.h.{}.mlp", "transformer.h.{}.ln_1"),
    "llama": ("model.embed_tokens", None, "model.layers.{}.self_attn.o_proj",
              "model.layers.{}.mlp", "model.layers.{}.input_layernorm"),
    "qwen3": ("model.embed_tokens", None, "model.layers.{}.self_attn.o_proj",
              "model.layers.{}.mlp", "model.layers.{}.input_layernorm"),
    "gpt_neox": ("gpt_neox.embed_in", None, "gpt_neox.layers.{}.attention.dense",
                 "gpt_neox.layers.{}.mlp", "gpt_neox.layers.{}.input_layernorm"),
    "bloom": ("transformer.word_embeddings_layernorm", None,
              "transformer.h.{}.self_attention.dense", "transformer.h.{}.mlp.dense_4h_to_h",
              "transformer.h.{}.input_layernorm"),
}  # fmt: skip
BIAS = "ALiBi's bias"


class Split:
    """One layer's queries and keys as sums of components.

    `asked[name] [text, head, pos, d]` add up to `queries`; `keys[name] [text, kv, pos, d]`, before
    rotation `still[name]`.
    """

    def __init__(self, path: Path, windows: np.ndarray, layer: int) -> None:
        model = hf_eager_model(path)
        config = json.loads((path / "config.json").read_text())
        kind = config["model_type"]
        heads = config.get("num_attention_heads") or config["n_head"]
        embedding, positions, out, mlp, norm = PLACES[kind]
        seen = {}

        def keep(name, of_input=False):
            def hook(_module, given, put):
                put = put[0] if isinstance(put, tuple) else put
                seen[name] = (given[0] if of_input else put).double().numpy()

            model.get_submodule(name).register_forward_hook(hook)

        for name in filter(None, (embedding, positions)):
            keep(name)
        for at in range(layer):
            keep(out.format(at), of_input=True)
            keep(mlp.format(at))
        with torch.inference_mode():
            given = model(torch.from_numpy(windows), output_hidden_states=True, use_cache=False)
        stream = given.hidden_states[layer].double().numpy()
        state = {name: value.double().numpy() for name, value in model.state_dict().items()}

        parts = {"token embedding": seen[embedding]}
        if positions:
            parts["positional embedding"] = np.broadcast_to(seen[positions], stream.shape)
        biases = np.zeros(stream.shape)
        for at in range(layer):
            z, weight = seen[out.format(at)], state[f"{out.format(at)}.weight"]
            weight = weight if kind == "gpt2" else weight.T
            width = weight.shape[0] // heads
            for head in range(heads):
                own = slice(head * width, (head + 1) * width)
                parts[f"L{at}H{head}"] = z[..., own] @ weight[own]
            biases = biases + state.get(f"{out.format(at)}.bias", 0.0)
            parts[f"MLP {at}"] = seen[mlp.format(at)]
        if biases.any():
            parts["output biases"] = biases
        np.testing.assert_allclose(sum(parts.values()), stream, atol=2e-5)

        gain = state[f"{norm.format(layer)}.weight"]
        shift = state.get(f"{norm.format(layer)}.bias")
        eps = config.get("layer_norm_epsilon", config.get("layer_norm_eps",
                                                          config.get("rms_norm_eps")))  # fmt: skip

        def centred(x):
            return x if shift is None else x - x.mean(axis=-1, keepdims=True)

        sigma = np.sqrt((centred(stream) ** 2).mean(axis=-1, keepdims=True) + eps)
        constant = np.zeros(len(gain)) if shift is None else shift
        sides = maps(kind, state, layer, heads)
        width = config.get("head_dim") or sides[0][0].shape[1] // heads
        found = []
        for part, (weight, bias) in zip("qk", sides, strict=True):
            side = {name: gain * centred(x) / sigma @ weight for name, x in parts.items()}
            rest = constant @ weight + bias
            if rest.any():
                side["constant"] = np.broadcast_to(rest, (*windows.shape, len(rest)))
            side = {name: heads_of(x, width) for name, x in side.items()}
            if kind == "qwen3":
                size = np.sqrt((sum(side.values()) ** 2).mean(axis=-1, keepdims=True) + eps)
                own = state[f"model.layers.{layer}.self_attn.{part}_norm.weight"]
                side = {name: x / size * own for name, x in side.items()}
            found.append(side)
        angles = turning(config, width, np.arange(windows.shape[1]))
        self.turn = lambda x: rotated(x, angles)
        self.still = found[1]
        self.asked, self.keys = ({name: self.turn(x) for name, x in side.items()} for side in found)
        self.queries = sum(self.asked.values())
        self.slopes = slopes(heads) if kind == "bloom" else None
        self.scale, self.window, self.capped = 1 / math.sqrt(width), None, lambda x: x


def maps(kind, state, layer, heads):
    """Weights [in, out] and biases of queries and of keys."""
    if kind == "gpt2":
        name = f"transformer.h.{layer}.attn.c_attn"
        weight, bias = (
            np.split(state[f"{name}.{part}"], 3, axis=-1) for part in ("weight", "bias")
        )
        return (weight[0], bias[0]), (weight[1], bias[1])
    if kind in ("gpt_neox", "bloom"):
        place = {
            "gpt_neox": "gpt_neox.layers.{}.attention",
            "bloom": "transformer.h.{}.self_attention",
        }
        name = f"{place[kind].format(layer)}.query_key_value"
        weight = state[f"{name}.weight"]
        weight = weight.reshape(heads, 3, -1, weight.shape[1])
        bias = state[f"{name}.bias"].reshape(heads, 3, -1)
        return tuple(
            (weight[:, i].reshape(-1, weight.shape[-1]).T, bias[:, i].ravel()) for i in (0, 1)
        )
    name = f"model.layers.{layer}.self_attn"
    return tuple((state[f"{name}.{each}_proj.weight"].T, 0.0) for each in "qk")


def slopes(heads):
    """ALiBi's slopes of BLOOM for a number of heads that may be no power of two."""
    power = 2 ** math.floor(math.log2(heads))
    base = 2 ** (-(2 ** -(math.log2(power) - 3)))
    found = [base ** (n + 1) for n in range(power)]
    if power < heads:
        extra = 2 ** (-(2 ** -(math.log2(2 * power) - 3)))
        found += [extra ** (2 * n + 1) for n in range(heads - power)]
    return found


class Expected:
    """The numbers of one head for a choice of groups; text `t` is of group `t % groups`."""

    def __init__(self, split, head, positions, skip, groups, kept):
        kv = head * next(iter(split.keys.values())).shape[1] // split.queries.shape[1]
        texts = len(split.queries)
        self.names = [*split.keys] + ([BIAS] if split.slopes else [])
        of = {g: [t for t in range(texts) if t % groups == g] for g in kept}

        def mean(keys, g):
            return sum(keys[t, kv] for t in of[g]) / len(of[g])

        keys = {g: {name: mean(x, g) for name, x in split.keys.items()} for g in kept}
        still = {g: {name: mean(x, g) for name, x in split.still.items()} for g in kept}
        constant = {
            g: {name: split.turn(np.broadcast_to(x[skip:].mean(axis=0), x.shape))
                for name, x in still[g].items()} for g in kept
        }  # fmt: skip
        fall = split.slopes[head] if split.slopes else 0.0
        sums = {
            which: dict.fromkeys(self.names, 0.0)
            for which in ("share", "equal_share", "turned_share")
        }
        total = dict.fromkeys(("share", "equal_share"), 0.0)
        plain, spread, rows = 0.0, 0.0, 0
        effects = dict.fromkeys(self.names, 0.0)
        scores, kernels = {}, {}
        for own, n in itertools.product(kept, positions):
            seen = np.arange(max(skip, n + 1 - (split.window or n + 1)), n + 1)
            bias = -fall * (n - seen)
            for text in of[own]:
                q = split.scale * split.queries[text, head, n]
                rows += 1
                part = {g: {name: x[seen] @ q for name, x in keys[g].items()} for g in kept}
                still_part = {
                    g: {name: x[seen] @ q for name, x in constant[g].items()} for g in kept
                }
                for g in kept:
                    if split.slopes:
                        part[g][BIAS], still_part[g][BIAS] = bias, 0 * bias
                whole = {g: sum(part[g].values()) for g in kept}
                average = sum(whole.values()) / len(kept)
                kernel = softmax(split.capped(average))
                kernels.setdefault(n, []).append(kernel)
                equal = np.full(len(seen), 1 / len(seen))
                for g, h in itertools.permutations(kept, 2):
                    if own in (g, h):
                        continue
                    for which, weights in (("share", kernel), ("equal_share", equal)):
                        total[which] += covariance(whole[g], whole[h], weights)
                        for name in self.names:
                            sums[which][name] += covariance(part[g][name], whole[h], weights)
                    for name in self.names:
                        sums["turned_share"][name] += covariance(
                            still_part[g][name], whole[h], kernel
                        )
                plain += covariance(average, average, kernel)
                score = sum(x[text, kv] for x in split.keys.values())[seen] @ q + bias
                spread += covariance(score, score, equal)
                for name in self.names:
                    rest = average - sum(part[g][name] for g in kept) / len(kept)
                    effects[name] += np.abs(kernel - softmax(split.capped(rest))).sum() / 2
                    for g in kept:
                        if g != own or name == BIAS:
                            scores.setdefault((n, name), []).append(part[g][name])
        triples = rows * (len(kept) - 1) * (len(kept) - 2)
        self.values = {
            "share": {name: sums["share"][name] / total["share"] for name in self.names},
            "equal_share": {
                name: sums["equal_share"][name] / total["equal_share"] for name in self.names
            },
            "turned_share": {
                name: sums["turned_share"][name] / total["share"] for name in self.names
            },
            "effect": {name: effects[name] / rows for name in self.names},
        }
        self.noise = 1 - total["share"] / triples / (plain / rows)
        self.position_share = total["equal_share"] / triples / (spread / rows)
        self.scores = {}
        for (n, name), each in scores.items():
            mean, kernel = sum(each) / len(each), sum(kernels[n]) / len(kernels[n])
            self.scores[n, name] = mean - kernel @ mean


def softmax(scores):
    return np.array(oracles.softmax(scores))


def covariance(x, y, weights):
    return float(weights @ (x * y) - (weights @ x) * (weights @ y))
