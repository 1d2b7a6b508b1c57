"""Gather what is the same for every text, and run models with heads that attend by it."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Experiment, ExperimentContext
from poskernel_core.analyses.kernel_only import formulas, spec
from poskernel_core.analyses.rotary.formulas import positional_logit, products
from poskernel_core.common.attention import ScoreRule, repeat_kv
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import groups_of
from poskernel_core.common.heads import largest_first, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall, PatternBlock, masked_scores
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import FixedHeads
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.readout import losses
from poskernel_core.forward.rotation import Rotation
from poskernel_core.models.geometry import Geometry
from poskernel_core.statistics.moments import means_of

LARGEST = 10
"""Heads whose cost is exact, those with the largest estimates."""
BATCH = 4
"""Windows per forward pass, if the execution does not say."""
CURVES = (formulas.KERNEL, formulas.MEAN_PATTERN)

Cell = tuple[int, int]
Means = Mapping[str, np.ndarray]


class Texts(NamedTuple):
    """Windows ``[text, pos]`` for kernels and means, others for the loss, and the group of each."""

    kernels: np.ndarray
    loss: np.ndarray
    group: np.ndarray


def divided(subject: ExperimentContext, params: spec.KernelOnlyParams) -> Texts:
    """Give one half of the groups of texts to the kernels, the other to the loss."""
    windows = subject.windows
    groups = groups_of(len(windows))
    if groups < 4 or windows.shape[1] < params.skip + 2:
        raise BadRequest(
            f"Expected four windows of text or more, of {params.skip + 2} tokens or more (the "
            f"skip and two); got {len(windows)} of {windows.shape[1]}: choose more text, longer "
            "windows, or a smaller skip."
        )
    group, half = np.arange(len(windows)) % groups, (groups + 1) // 2
    kernels, loss, few = windows[group < half], windows[group >= half], groups - half
    most = max(half, params.kernel_windows // half * half)
    count = max(few, params.loss_windows // few * few)
    return Texts(kernels[:most], loss[:count], (np.arange(len(loss)) % few)[:count])


def check_heads(geometry: Geometry, cells: Sequence[Cell]) -> None:
    """Refuse heads of layers that have none."""
    if odd := {layer for layer, _ in cells} - {*geometry.with_heads}:
        raise BadRequest(
            f"Layer {min(odd)} has no attention heads; expected heads such as {geometry.cells[0]}."
        )


@dataclass
class Fixed:
    """What is the same for every text: patterns ``[head, query, key]`` and mean outputs, by layer.

    Patterns are by the name of what takes a head's place.
    """

    patterns: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Everything that can take a head's place."""
        return [*next(iter(self.patterns.values())), formulas.ZERO, formulas.MEAN_OUTPUT]

    def edit(self, name: str, cells: Sequence[Cell]) -> FixedHeads:
        """Return the edit that puts something in the place of heads."""
        if name in (formulas.ZERO, formulas.MEAN_OUTPUT):
            scale = float(name == formulas.MEAN_OUTPUT)
            return FixedHeads(outputs={(at, head): scale * self.outputs[at][head]
                                       for at, head in cells})  # fmt: skip
        return FixedHeads({(at, head): self.patterns[at][name][head] for at, head in cells})


class _Sums(Observer):
    """Sums over texts, by name and layer; with mean ``keys`` of all texts, those of kernels."""

    def __init__(self, skip: int, rotary: bool, keys: Mapping[int, Tensor] | None = None) -> None:
        self.skip, self.keys = skip, keys
        self.wants_patterns, self.wants_rotations = keys is None, keys is None and rotary
        self.sums: dict[str, dict[int, Tensor]] = defaultdict(dict)
        self.rules: dict[int, ScoreRule] = {}
        self.speeds: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._rotations: dict[int, Rotation] = {}

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        self._rotations[layer] = rotation

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if self.keys is not None:
            mean = self.keys[call.layer].to(call.k)
            scores = masked_scores(replace(call, k=mean.expand_as(call.k)))
            scores[..., : self.skip] = -torch.inf
            self._add(formulas.KERNEL, call.layer, scores.softmax(dim=-1).nan_to_num(0.0))
            return
        self.rules[call.layer] = call.rule
        self._add("keys", call.layer, call.k)
        rotation = self._rotations.pop(call.layer, None)
        if rotation is not None and len(rotation.first):
            self.speeds[call.layer] = rotation.speeds()
            for name, x in (("query pairs", call.q), ("key pairs", call.k)):
                pairs = torch.stack(rotation.turned_back(x), dim=-1)
                self._add(name, call.layer, pairs[:, :, self.skip :].mean(dim=2))

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self._add(formulas.MEAN_PATTERN, block.layer, block.pattern)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        self._add(formulas.MEAN_OUTPUT, layer, z.mean(dim=2))

    def _add(self, name: str, layer: int, values: Tensor) -> None:
        sums, more = self.sums[name], values.float().sum(dim=0).cpu().double()
        sums[layer] = sums[layer] + more if layer in sums else more


def fixed_of(subject: ExperimentContext, windows: Tokens, skip: int) -> Fixed:
    """Return kernels and means, gathered by two passes; the model remembers the last ones."""
    key = hashlib.sha256(windows.tobytes() + bytes([skip])).hexdigest()
    made: Fixed = subject.model.remember("kernel-only", key, lambda: gather(subject, windows, skip))
    return made


def gather(subject: ExperimentContext, windows: Tokens, skip: int) -> Fixed:
    """Gather mean keys, patterns, outputs and rotary pairs by one pass, kernels by a second one."""
    means = _Sums(skip, subject.model.geometry.scheme == "rotary")
    kernels = _Sums(skip, False, keys := {})
    mean: dict[str, dict[int, Tensor]] = {}
    for done, seen in ((0, means), (len(windows), kernels)):
        for _, tokens in subject.batches(windows, BATCH, done, 2 * len(windows)):
            subject.model.run(tokens, Edit(), [seen], until=-1)
        for name, sums in seen.sums.items():
            mean[name] = {layer: total / len(windows) for layer, total in sums.items()}
        keys.update(mean["keys"])
    fixed, place, device = Fixed(), np.arange(windows.shape[1]), subject.model.device
    for layer in subject.model.geometry.with_heads:
        observed = mean[formulas.MEAN_PATTERN][layer].numpy()
        hidden = (rule := means.rules[layer]).is_hidden(place[:, None], place[None])
        uniform = ~hidden / (~hidden).sum(axis=1, keepdims=True)
        rows = {
            formulas.KERNEL: formulas.spread(mean[formulas.KERNEL][layer].numpy(), observed, skip),
            formulas.MEAN_PATTERN: observed,
        }
        if means.speeds:
            pairs = [mean.get(name, {}).get(layer) for name in ("query pairs", "key pairs")]
            equal = _equivariant(pairs, means.speeds.get(layer), rule, hidden | (place < skip))
            rows[formulas.EQUIVARIANT] = formulas.spread(
                np.broadcast_to(equal, observed.shape), observed, skip
            )
        rows[formulas.UNIFORM] = np.broadcast_to(uniform, observed.shape)
        fixed.patterns[layer] = {
            name: torch.tensor(pattern, dtype=torch.float32, device=device)
            for name, pattern in rows.items()
        }
        fixed.outputs[layer] = mean[formulas.MEAN_OUTPUT][layer].float().to(device)
    return fixed


def _equivariant(
    pairs: Sequence[Any], speeds: Any, rule: ScoreRule, hidden: np.ndarray
) -> np.ndarray:
    """Return the equivariant kernel at every query; uniform in a layer that turns nothing."""
    logit = np.zeros((1, len(hidden)))
    if speeds is not None:
        heads = len(pairs[0])
        queries, keys = (
            torch.view_as_complex(repeat_kv(pair, heads).contiguous()).numpy() for pair in pairs
        )
        product = products(queries, keys, speeds[1], rule.scale)
        logit = positional_logit(product, speeds[0], np.arange(len(hidden), dtype=float))
    offset = np.abs(np.subtract.outer(np.arange(len(hidden)), np.arange(len(hidden))))
    scores = torch.from_numpy(np.where(hidden, -np.inf, logit[:, offset]))
    return scores.softmax(dim=-1).nan_to_num(0.0).numpy()


class Outputs(Edit):
    """Adds zeros to the heads' outputs, by which gradients can be taken."""

    def __init__(self) -> None:
        self.zeros: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}

    def heads(self, layer: int, z: Tensor) -> Tensor:
        self.outputs[layer] = z.detach()
        self.zeros[layer] = torch.zeros_like(z, requires_grad=True)
        return z + self.zeros[layer]


class _Seen(Observer):
    """The stream before some layers, and values and outputs ``[text, head, pos, d]`` there."""

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = layers
        self.before: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer in self.layers:
            self.before[layer] = x

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer in self.layers:
            self.values[call.layer] = repeat_kv(call.v.detach(), call.q.shape[1], 1)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        if layer in self.layers:
            self.outputs[layer] = z


def mean_losses(logits: Tensor, tokens: Tensor) -> np.ndarray:
    """Return each text's mean loss ``[text]``, in nats a token."""
    return losses(logits, tokens).mean(dim=1).cpu().numpy()


def estimated_costs(
    subject: ExperimentContext, windows: Tokens, fixed: Fixed, draws: int
) -> np.ndarray:
    """Return the estimated costs ``[text, replacement, layer, head]``, in nats a token.

    A forward and ``1 + draws`` backward runs of every window.
    """
    geometry = subject.model.geometry
    costs = np.full((len(windows), len(fixed.names), geometry.n_layers, geometry.n_heads), np.nan)
    generator = torch.Generator("cpu").manual_seed(0)
    for some, tokens in subject.batches(windows, BATCH):
        edit, seen = Outputs(), _Seen(geometry.with_heads)
        logits = subject.model.run(tokens, edit, [seen], graph=True)
        text = slice(some.start, some.stop)
        log_p, predicted = logits[:, :-1].log_softmax(dim=-1), tokens.shape[1] - 1
        right, root = tokens[:, 1:, None].to(log_p.device), (log_p.detach() / 2).exp()
        for draw in range(draws + 1):
            goal = -log_p.gather(-1, right).sum() / predicted
            if draw:
                signs = torch.randint(
                    2, log_p.shape, generator=generator, dtype=torch.int8, device="cpu"
                )
                goal = ((2 * signs.to(log_p) - 1) * root * log_p).sum()
            zeros = list(edit.zeros.values())
            gradients = torch.autograd.grad(goal, zeros, retain_graph=draw < draws)
            for layer, gradient in zip(edit.zeros, gradients, strict=True):
                inner = _products(gradient, edit.outputs[layer], seen.values[layer], fixed, layer)
                if draw == 0:
                    costs[text, :, layer] = inner.sum(axis=-1)
                    continue
                # what the last layer writes acts on its own position alone: other products of two
                # positions are noise
                last = layer == geometry.n_layers - 1
                squares = (inner**2).sum(axis=-1) if last else inner.sum(axis=-1) ** 2
                costs[text, :, layer] += squares / (2 * predicted * draws)
    return costs


def _products(gradient: Tensor, z: Tensor, values: Tensor, fixed: Fixed, layer: int) -> np.ndarray:
    """Return ``gradient . change of z`` by replacement, ``[text, replacement, head, pos]``."""
    own = (gradient * z).sum(dim=-1)
    seen = gradient @ values.transpose(-1, -2)
    patterns = torch.stack([*fixed.patterns[layer].values()]).to(seen)
    outputs = torch.einsum("thqk,rhqk->rthq", seen, patterns)
    mean = torch.einsum("thqd,hd->thq", gradient, fixed.outputs[layer].to(gradient))
    every = torch.stack([*outputs, torch.zeros_like(own), mean]) - own
    return every.transpose(0, 1).double().cpu().numpy()


def exact_costs(
    subject: ExperimentContext, windows: Tokens, fixed: Fixed, cells: Sequence[Cell]
) -> tuple[np.ndarray, np.ndarray]:
    """Return exact costs ``[text, replacement, cell]`` and the clean loss ``[text]``, in nats.

    The clean stream before each layer is kept, so that a run begins at the head's layer.
    """
    model, names = subject.model, fixed.names
    costs = np.empty((len(windows), len(names), len(cells)))
    clean = np.empty(len(windows))
    for some, tokens in subject.batches(windows, BATCH, total=0):
        seen, text = _Seen([layer for layer, _ in cells]), slice(some.start, some.stop)
        clean[text] = mean_losses(model.run(tokens, Edit(), [seen]), tokens)
        for place, cell in enumerate(cells):
            subject.progress(some.start * len(cells) + place * len(some), len(windows) * len(cells))
            for row, name in enumerate(names):
                begin = cell[0], seen.before[cell[0]]
                logits = model.run(tokens, fixed.edit(name, [cell]), stream=begin)
                costs[text, row, place] = mean_losses(logits, tokens) - clean[text]
    return costs, clean


def answer(
    question: type[Experiment[Any]],
    subject: ExperimentContext,
    params: spec.KernelOnlyParams,
    cut: Texts,
    samples: Means,
    more: Callable[[Means], Means],
    *others: Any,
    **parts: Any,
) -> Result:
    """Return means of samples ``[text, ...]`` and ``more`` of them, with errors over texts."""
    kept = ({**mean, **more(mean)} for mean in means_of(samples, cut.group.tolist()))
    sizes = {"kernel_windows": len(cut.kernels), "loss_windows": len(cut.loss)}
    provenance = sizes | {"tokens": cut.loss.shape[1]}
    return question.estimated(subject, params, kept, *others, provenance=provenance, **parts)


def _of_kernel(means: Means) -> Means:
    cost = means["cost"]
    return {
        "kernel_only_cost": np.asarray(cost[0]),
        "kernel_only_share": formulas.shares_kept(cost),
    }


def kernel_only_cost(subject: ExperimentContext, params: spec.KernelOnlyCostParams) -> Result:
    """Estimate the costs of all heads, and compute some; see :class:`spec.KernelOnlyCost`."""
    texts = divided(subject, params)
    fixed = fixed_of(subject, texts.kernels, params.skip)
    estimated = estimated_costs(subject, texts.loss, fixed, params.draws)
    cost, mean = estimated.copy(), estimated[:, 0].mean(axis=0)
    cells = sorted(largest_first(mean, None if params.exact == "all" else LARGEST))
    exact, clean = exact_costs(subject, texts.loss, fixed, cells)
    how = np.zeros(mean.shape, dtype=np.int64)
    for place, cell in enumerate(cells):
        cost[:, :, *cell], how[cell] = exact[..., place], 1
    samples = {"cost": cost, "estimated_cost": estimated[:, 0], "clean_loss": clean}
    return answer(
        spec.KernelOnlyCost, subject, params, texts, samples, _of_kernel, {"exact": how},
        texts={"replacement": fixed.names},
    )  # fmt: skip


def kernel_only_head(subject: ExperimentContext, params: spec.KernelOnlyHeadParams) -> Result:
    """Compute the exact costs of one head; see :class:`spec.KernelOnlyHead`."""
    geometry = subject.model.geometry
    cell = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    check_heads(geometry, [cell])
    texts = divided(subject, params)
    fixed = fixed_of(subject, texts.kernels, params.skip)
    exact, clean = exact_costs(subject, texts.loss, fixed, [cell])
    samples = {"cost": exact[..., 0], "clean_loss": clean}
    return answer(
        spec.KernelOnlyHead, subject, params, texts, samples, _of_kernel,
        texts={"replacement": fixed.names},
    )  # fmt: skip


def heads_replaced(subject: ExperimentContext, params: spec.HeadsReplacedParams) -> Result:
    """Run the model with more and more heads replaced; see :class:`spec.HeadsReplaced`."""
    texts, geometry = divided(subject, params), subject.model.geometry
    fixed = fixed_of(subject, texts.kernels, params.skip)
    few = texts.kernels[: len(texts.loss)]
    estimated = estimated_costs(subject, few, fixed, params.draws).mean(axis=0)
    orders = [largest_first(-estimated[fixed.names.index(name)]) for name in CURVES]
    counts = formulas.numbers_of_heads(len(geometry.with_heads) * geometry.n_heads)
    change, clean = np.empty((len(texts.loss), len(CURVES), len(counts))), np.empty(len(texts.loss))
    for some, tokens in subject.batches(texts.loss, BATCH, total=0):
        at = slice(some.start, some.stop)
        clean[at] = mean_losses(subject.model.run(tokens, Edit()), tokens)
        for done, (row, place) in enumerate(np.ndindex(change.shape[1:])):
            subject.progress(some.start * change[0].size + done * len(some), change.size)
            edit = fixed.edit(CURVES[row], orders[row][: counts[place]])
            loss = mean_losses(subject.model.run(tokens, edit), tokens)
            change[at, row, place] = loss - clean[at]

    def numbers(means: Means) -> Means:
        limits = {"tenth": 0.1, "5_percent": 0.05 * float(means["clean_loss"])}
        rows = means["loss_change"]
        return {
            f"heads_for_{name}": np.array([formulas.heads_for(limit, counts, row) for row in rows])
            for name, limit in limits.items()
        }

    samples = {"loss_change": change, "clean_loss": clean}
    return answer(
        spec.HeadsReplaced, subject, params, texts, samples, numbers,
        texts={"pattern": list(CURVES)}, coordinates={"heads": counts},
    )  # fmt: skip
