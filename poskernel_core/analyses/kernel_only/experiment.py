"""Gather what is the same for every text, and run models with heads that attend by it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.kernel_only.formulas import (
    EQUIVARIANT,
    KERNEL,
    MEAN_OUTPUT,
    MEAN_PATTERN,
    PERCENT,
    TENTH,
    UNIFORM,
    ZERO,
    heads_for,
    numbers_of_heads,
    shares_kept,
    spread,
)
from poskernel_core.analyses.kernel_only.spec import (
    HeadsReplaced,
    HeadsReplacedParams,
    KernelOnlyCost,
    KernelOnlyCostParams,
    KernelOnlyHead,
    KernelOnlyHeadParams,
    KernelOnlyParams,
)
from poskernel_core.analyses.rotary.formulas import positional_logit, products
from poskernel_core.common.attention import ScoreRule, repeat_kv
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import groups_of
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall, PatternBlock, masked_scores
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import FixedHeads
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.rotation import Rotation

LARGEST = 10
"""Heads whose cost is exact, those with the largest estimates."""
BATCH = 4
"""Windows per forward pass, if the execution does not say."""
CURVES = (KERNEL, MEAN_PATTERN)

Cell = tuple[int, int]


@dataclass(frozen=True)
class Texts:
    """Windows of a run, divided by their groups of texts.

    Attributes:
        kernels: windows that give kernels and means, ``[text, pos]``.
        loss: windows that the loss is taken over, ``[text, pos]``.
        group: the group of each of these.
    """

    kernels: np.ndarray
    loss: np.ndarray
    group: np.ndarray


def divided(subject: ExperimentContext, params: KernelOnlyParams) -> Texts:
    """Give one half of the groups of texts to the kernels, the other to the loss."""
    windows = subject.windows
    groups = groups_of(len(windows))
    if groups < 4 or windows.shape[1] < params.skip + 2:
        raise BadRequest(
            "Expected four windows of text or more, two for kernels and two for the loss, got "
            f"{len(windows)} of {windows.shape[1]} tokens: choose more text."
        )
    group, half = np.arange(len(windows)) % groups, (groups + 1) // 2
    kernels, loss = windows[group < half], windows[group >= half]
    few = groups - half
    count = max(few, params.loss_windows // few * few)
    most = max(half, params.kernel_windows // half * half)
    return Texts(kernels[:most], loss[:count], (np.arange(len(loss)) % few)[:count])


@dataclass
class Fixed:
    """What is the same for every text: ``patterns [head, query, key]`` and mean outputs, by layer.

    Patterns are by the name of what takes a head's place.
    """

    patterns: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Everything that can take a head's place."""
        return [*next(iter(self.patterns.values())), ZERO, MEAN_OUTPUT]

    def edit(self, name: str, cells: Sequence[Cell]) -> FixedHeads:
        """Return the edit that puts something in the place of heads."""
        if name in (ZERO, MEAN_OUTPUT):
            outputs = {(at, head): self.outputs[at][head] for at, head in cells}
            if name == ZERO:
                outputs = {cell: torch.zeros_like(out) for cell, out in outputs.items()}
            return FixedHeads(outputs=outputs)
        return FixedHeads({(at, head): self.patterns[at][name][head] for at, head in cells})


class _Means(Observer):
    """Sums of keys, patterns, outputs and rotary pairs over texts, by layer."""

    wants_patterns = True
    wants_rotations = True

    def __init__(self, skip: int) -> None:
        self.skip = skip
        self.sums: dict[str, dict[int, Tensor]] = {}
        self.rules: dict[int, ScoreRule] = {}
        self.speeds: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._rotations: dict[int, Rotation] = {}

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        self._rotations[layer] = rotation

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self.rules[call.layer] = call.rule
        self._add("keys", call.layer, call.k)
        rotation = self._rotations.pop(call.layer, None)
        if rotation is not None and len(rotation.first):
            self.speeds[call.layer] = rotation.speeds()
            for name, x in (("query pairs", call.q), ("key pairs", call.k)):
                pairs = torch.stack(rotation.turned_back(x), dim=-1)
                self._add(name, call.layer, pairs[:, :, self.skip :].mean(dim=2))

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        rows, keys = block.pattern.shape[-2:]
        length = batch.tokens.shape[1]
        whole = block.pattern.new_zeros(1, block.pattern.shape[1], length, length)
        at = slice(block.first_row, block.first_row + rows)
        seen = slice(block.first_key, block.first_key + keys)
        whole[0, :, at, seen] = block.pattern.sum(dim=0)
        self._add("patterns", block.layer, whole)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        self._add("outputs", layer, z.mean(dim=2))

    def _add(self, name: str, layer: int, values: Tensor) -> None:
        sums, more = self.sums.setdefault(name, {}), values.float().sum(dim=0).cpu().double()
        sums[layer] = sums[layer] + more if layer in sums else more


class _Kernels(Observer):
    """Sums of the kernels of all queries, by layer, with the mean keys of the same texts."""

    def __init__(self, keys: Mapping[int, Tensor], skip: int) -> None:
        self.keys, self.skip = keys, skip
        self.sums: dict[int, Tensor] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        mean = self.keys[call.layer].to(call.k)
        scores = masked_scores(replace(call, k=mean.expand_as(call.k)))
        scores[..., : self.skip] = -torch.inf
        more = scores.softmax(dim=-1).nan_to_num(0.0).sum(dim=0).cpu().double()
        self.sums[call.layer] = self.sums[call.layer] + more if call.layer in self.sums else more


def fixed_of(subject: ExperimentContext, texts: Texts, skip: int, progress: Progress) -> Fixed:
    """Return kernels and means, gathered by two passes; the model remembers the last ones."""
    key = hashlib.sha256(texts.kernels.tobytes() + bytes([skip])).hexdigest()
    made: Fixed = subject.model.remember(
        "kernel-only", key, lambda: gather(subject, texts.kernels, skip, progress)
    )
    return made


def gather(subject: ExperimentContext, windows: Tokens, skip: int, progress: Progress) -> Fixed:
    """Gather mean keys, patterns, outputs and rotary pairs by one pass, kernels by a second one."""
    means, count = _Means(skip), len(windows)
    means.wants_rotations = subject.model.geometry.scheme == "rotary"
    for done, tokens in _batches(subject, windows):
        progress(done, 2 * count)
        subject.model.run(tokens, observers=[means], until=-1)
    mean = {
        name: {layer: total / count for layer, total in sums.items()}
        for name, sums in means.sums.items()
    }
    kernels = _Kernels(mean["keys"], skip)
    for done, tokens in _batches(subject, windows):
        progress(count + done, 2 * count)
        subject.model.run(tokens, observers=[kernels], until=-1)
    fixed, length = Fixed(), windows.shape[1]
    for layer in subject.model.geometry.with_heads:
        observed, rule = mean["patterns"][layer].numpy(), means.rules[layer]
        place = np.arange(length)
        hidden = rule.is_hidden(place[:, None], place[None])
        uniform = np.broadcast_to(~hidden / (~hidden).sum(axis=1, keepdims=True), observed.shape)
        rows = {KERNEL: spread(kernels.sums[layer].numpy() / count, observed, skip)}
        rows[MEAN_PATTERN] = observed
        if means.speeds:
            equivariant = _equivariant(means, mean, layer, hidden | (place < skip))
            rows[EQUIVARIANT] = spread(equivariant, observed, skip)
        rows[UNIFORM] = uniform
        device = subject.model.device
        fixed.patterns[layer] = {
            name: torch.tensor(each, dtype=torch.float32, device=device)
            for name, each in rows.items()
        }
        fixed.outputs[layer] = mean["outputs"][layer].float().to(device)
    return fixed


def _equivariant(
    means: _Means, mean: Mapping[str, Mapping[int, Tensor]], layer: int, hidden: np.ndarray
) -> np.ndarray:
    """Return the equivariant kernel at every query; uniform in a layer that turns nothing."""
    heads, length = len(mean["patterns"][layer]), len(hidden)
    logit = np.zeros((heads, length))
    if layer in means.speeds:
        speed, factor = means.speeds[layer]
        queries, keys = (
            torch.view_as_complex(repeat_kv(mean[name][layer], heads).contiguous()).numpy()
            for name in ("query pairs", "key pairs")
        )
        product = products(queries, keys, factor, means.rules[layer].scale)
        logit = positional_logit(product, speed, np.arange(length, dtype=float))
    offset = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    scores = torch.from_numpy(np.where(hidden, -np.inf, logit[:, offset]))
    return scores.softmax(dim=-1).nan_to_num(0.0).numpy()


def _batches(subject: ExperimentContext, windows: Tokens) -> Iterator[tuple[int, Tensor]]:
    size = subject.batch or BATCH
    for first in range(0, len(windows), size):
        yield first, torch.from_numpy(windows[first : first + size])


class Outputs(Edit):
    """Adds zeros to the heads' outputs, by which gradients can be taken."""

    def __init__(self) -> None:
        self.zeros: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}

    def heads(self, layer: int, z: Tensor) -> Tensor:
        """Return the outputs with zeros added."""
        self.outputs[layer] = z.detach()
        self.zeros[layer] = torch.zeros_like(z, requires_grad=True)
        return z + self.zeros[layer]


class _Values(Observer):
    """Keeps the values of every layer, ``[text, head, pos, d]``."""

    def __init__(self) -> None:
        self.of: dict[int, Tensor] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self.of[call.layer] = repeat_kv(call.v.detach(), call.q.shape[1], 1)


class Stream(Observer):
    """Keeps the residual stream before some layers."""

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = layers
        self.before: dict[int, Tensor] = {}

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        """Keep the stream of a batch."""
        if layer in self.layers:
            self.before[layer] = x


def _losses(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return ``-log p`` of every token but the first, ``[text, pos]``, in nats."""
    right = tokens[:, 1:].to(logits.device)
    return cross_entropy(logits[:, :-1].transpose(1, 2), right, reduction="none")


def _mean_losses(logits: Tensor, tokens: Tensor) -> np.ndarray:
    return _losses(logits, tokens).double().mean(dim=1).cpu().numpy()


def estimated_costs(
    subject: ExperimentContext, windows: Tokens, fixed: Fixed, draws: int, progress: Progress
) -> np.ndarray:
    """Return the estimated costs ``[text, replacement, layer, head]``, in nats a token.

    A forward and ``1 + draws`` backward runs of every window.
    """
    geometry = subject.model.geometry
    found = np.full((len(windows), len(fixed.names), geometry.n_layers, geometry.n_heads), np.nan)
    generator = torch.Generator().manual_seed(0)
    for first, tokens in _batches(subject, windows):
        progress(first, len(windows))
        edit, values = Outputs(), _Values()
        logits = subject.model.run(tokens, edit, [values], graph=True)
        layers, zeros = list(edit.zeros), list(edit.zeros.values())
        text = slice(first, first + len(tokens))
        predicted = tokens.shape[1] - 1
        log_p = logits[:, :-1].log_softmax(dim=-1)
        right = tokens[:, 1:, None].to(log_p.device)
        root = (log_p.detach() / 2).exp()
        for draw in range(draws + 1):
            if draw == 0:
                goal = -log_p.gather(-1, right).sum() / predicted
            else:
                signs = torch.randint(2, log_p.shape, generator=generator, dtype=torch.int8)
                goal = ((2 * signs.to(log_p) - 1) * root * log_p).sum()
            gradients = torch.autograd.grad(goal, zeros, retain_graph=draw < draws)
            for layer, gradient in zip(layers, gradients, strict=True):
                inner = _products(gradient, edit.outputs[layer], values.of[layer], fixed, layer)
                if draw == 0:
                    found[text, :, layer] = inner.sum(axis=-1)
                    continue
                # what the last layer writes acts on its own position alone: other products of two
                # positions are noise
                last = layer == geometry.n_layers - 1
                squares = (inner**2).sum(axis=-1) if last else inner.sum(axis=-1) ** 2
                found[text, :, layer] += squares / (2 * predicted * draws)
    return found


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
    subject: ExperimentContext,
    windows: Tokens,
    fixed: Fixed,
    cells: Sequence[Cell],
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Return exact costs ``[text, replacement, cell]`` and the clean loss ``[text]``, in nats.

    The clean stream before each layer is kept, so that a run begins at the head's layer.
    """
    model, names = subject.model, fixed.names
    found = np.empty((len(windows), len(names), len(cells)))
    clean = np.empty(len(windows))
    for first, tokens in _batches(subject, windows):
        stream, text = Stream([layer for layer, _ in cells]), slice(first, first + len(tokens))
        clean[text] = _mean_losses(model.run(tokens, Edit(), [stream]), tokens)
        for place, cell in enumerate(cells):
            progress(first * len(cells) + place * len(tokens), len(windows) * len(cells))
            for row, name in enumerate(names):
                begin = cell[0], stream.before[cell[0]]
                logits = model.run(tokens, fixed.edit(name, [cell]), stream=begin)
                found[text, row, place] = _mean_losses(logits, tokens) - clean[text]
    return found, clean


def _numbers(
    samples: Mapping[str, np.ndarray], group: np.ndarray, numbers: Any
) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Return numbers of the means of samples ``[text, ...]``, and without each group of texts."""
    kept = [group >= 0, *(group != out for out in range(group.max() + 1))]
    whole, *without = (
        numbers({name: np.asarray(each[those].mean(axis=0)) for name, each in samples.items()})
        for those in kept
    )
    return whole, without


def _told(texts: Texts) -> dict[str, Any]:
    return {
        "kernel_windows": len(texts.kernels),
        "loss_windows": len(texts.loss),
        "tokens": texts.loss.shape[1],
    }


def kernel_only_cost(
    subject: ExperimentContext,
    statistics: Statistics,
    params: KernelOnlyCostParams,
    progress: Progress,
) -> Result:
    """Estimate the costs of all heads, and compute some; see :class:`KernelOnlyCost`."""
    texts = divided(subject, params)
    fixed = fixed_of(subject, texts, params.skip, progress)
    estimated = estimated_costs(subject, texts.loss, fixed, params.draws, progress)
    names, cost = fixed.names, estimated.copy()
    mean = estimated[:, 0].mean(axis=0)
    order = np.argsort(-mean, axis=None, kind="stable")  # NaN comes last
    count = int(np.isfinite(mean).sum())
    order = order[: count if params.exact == "all" else min(count, LARGEST)]
    cells = sorted(divmod(int(place), mean.shape[1]) for place in order)
    exact, clean = exact_costs(subject, texts.loss, fixed, cells, progress)
    how = np.zeros(mean.shape, dtype=np.int64)
    for place, cell in enumerate(cells):
        cost[:, :, *cell], how[cell] = exact[..., place], 1

    def numbers(means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            "kernel_only_cost": np.asarray(means["cost"][0]),
            "kernel_only_share": shares_kept(means["cost"]),
            "cost": means["cost"],
            "estimated_cost": means["estimated"][0],
            "clean_loss": means["clean"],
        }

    samples = {"cost": cost, "estimated": estimated, "clean": clean}
    return KernelOnlyCost.estimated(
        subject,
        params,
        *_numbers(samples, texts.group, numbers),
        {"exact": how},
        texts={"replacement": names},
        provenance=_told(texts),
    )


def kernel_only_head(
    subject: ExperimentContext,
    statistics: Statistics,
    params: KernelOnlyHeadParams,
    progress: Progress,
) -> Result:
    """Compute the exact costs of one head; see :class:`KernelOnlyHead`."""
    geometry = subject.model.geometry
    cell = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    texts = divided(subject, params)
    fixed = fixed_of(subject, texts, params.skip, progress)
    exact, clean = exact_costs(subject, texts.loss, fixed, [cell], progress)
    names = fixed.names

    def numbers(means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            "cost": means["cost"],
            "kernel_only_cost": np.asarray(means["cost"][0]),
            "kernel_only_share": shares_kept(means["cost"]),
            "clean_loss": means["clean"],
        }

    return KernelOnlyHead.estimated(
        subject,
        params,
        *_numbers({"cost": exact[..., 0], "clean": clean}, texts.group, numbers),
        texts={"replacement": names},
        provenance=_told(texts),
    )


def heads_replaced(
    subject: ExperimentContext,
    statistics: Statistics,
    params: HeadsReplacedParams,
    progress: Progress,
) -> Result:
    """Run the model with more and more heads replaced; see :class:`HeadsReplaced`."""
    texts = divided(subject, params)
    fixed = fixed_of(subject, texts, params.skip, progress)
    estimated = estimated_costs(subject, texts.loss, fixed, params.draws, progress)
    with_heads, heads = subject.model.geometry.with_heads, subject.model.geometry.n_heads
    counts = numbers_of_heads(len(with_heads) * heads)
    change, clean = np.empty((len(texts.loss), len(CURVES), len(counts))), np.empty(len(texts.loss))
    done, total = 0, len(texts.loss) * len(CURVES) * len(counts)
    for half in (0, 1):
        own = np.flatnonzero(texts.group % 2 == half)
        orders = _orders(np.delete(estimated, own, axis=0), fixed.names)
        for first, tokens in _batches(subject, texts.loss[own]):
            at = own[first : first + len(tokens)]
            clean[at] = _mean_losses(subject.model.run(tokens, Edit()), tokens)
            for row, name in enumerate(CURVES):
                for place, count in enumerate(counts.tolist()):
                    progress(done, total)
                    edit = fixed.edit(name, orders[name][:count])
                    loss = _mean_losses(subject.model.run(tokens, edit), tokens)
                    change[at, row, place] = loss - clean[at]
                    done += len(tokens)

    def numbers(means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        limits = {"tenth": TENTH, "5_percent": PERCENT * float(means["clean"])}
        return {"loss_change": means["change"], "clean_loss": means["clean"]} | {
            f"heads_for_{name}": np.array(
                [heads_for(limit, counts, row) for row in means["change"]]
            )
            for name, limit in limits.items()
        }

    return HeadsReplaced.estimated(
        subject,
        params,
        *_numbers({"change": change, "clean": clean}, texts.group, numbers),
        texts={"pattern": list(CURVES)},
        coordinates={"heads": counts},
        provenance=_told(texts),
    )


def _orders(estimated: np.ndarray, names: list[str]) -> dict[str, list[Cell]]:
    """Return all heads in the order of their mean estimated costs, for each curve."""
    found = {}
    for name in CURVES:
        mean = estimated[:, names.index(name)].mean(axis=0)
        order = np.argsort(mean, axis=None, kind="stable")[: int(np.isfinite(mean).sum())]
        found[name] = [divmod(int(place), mean.shape[1]) for place in order]
    return found
