"""Put what a sender adds to the stream into one input of a head, along the direct path alone."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.circuits import spec
from poskernel_core.analyses.kernel_only.experiment import check_heads
from poskernel_core.analyses.patching.experiment import Metric, PairSet, texts_per_run
from poskernel_core.analyses.patching.spec import INTO_CHANGED
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.heads import head_name, largest_first, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.components import Part, read_parts
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import SetInputs
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.rotation import Rotation
from poskernel_core.statistics.moments import Numbers, means_of

SIDES = dict(zip(spec.INPUTS, "qkv", strict=True))
Cell = tuple[int, int]


class _Zeros(Edit):
    """Adds zeros to every head's own inputs, by which gradients can be taken."""

    keeps_attention = True

    def __init__(self) -> None:
        self.zeros: dict[int, dict[str, Tensor]] = {}

    def call(self, call: AttentionCall, rotation: Rotation | None) -> AttentionCall:
        own = {name: repeat_kv(getattr(call, name), call.q.shape[1], 1) for name in "qkv"}
        zeros = {name: torch.zeros_like(rows, requires_grad=True) for name, rows in own.items()}
        self.zeros[call.layer] = zeros
        return replace(call, **{name: rows + zeros[name] for name, rows in own.items()})


class _Seen(Observer):
    """The stream before some layers, and the inputs of the last layer that ran."""

    def __init__(self, layers: Collection[int] = ()) -> None:
        self.layers = layers
        self.stream: dict[int, Tensor] = {}
        self.call: AttentionCall | None = None

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer in self.layers:
            self.stream[layer] = x.detach().clone()

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self.call = call

    def of(self, head: int) -> dict[str, Tensor]:
        """Return a head's inputs, ``[text, pos, d]``."""
        assert self.call is not None
        every = {name: getattr(self.call, name) for name in "qkv"}
        heads = self.call.q.shape[1]
        return {name: rows[:, head * rows.shape[1] // heads] for name, rows in every.items()}


def edges(subject: ExperimentContext, params: spec.EdgesParams) -> Result:
    """Estimate edges into heads, or compute those into one exactly; see :class:`spec.Edges`."""
    geometry, head = subject.model.geometry, params.head.strip()
    chosen = [parse_cell(head, geometry.n_layers, geometry.n_heads)] if head else []
    check_heads(geometry, chosen)
    some = PairSet(subject, params)
    carried = some.carried()
    groups, shown = some.groups(fewest=2), some.shown
    # the heads that carry most, up or down
    sizes = np.abs(carried[shown].sum(axis=0))
    receivers = chosen or sorted(largest_first(sizes, params.receivers))
    layers = sorted({layer for layer, _ in receivers})
    way = 1 if params.direction == INTO_CHANGED else -1
    names, estimate, exact, done = list[str](), np.empty(0), np.empty(0), 0
    read = np.zeros(len(carried), dtype=bool)

    def numbers(means: Numbers) -> Numbers:
        apart = means["apart"]
        edge, total = means["exact"][..., :-1] / apart, means["exact"][..., -1] / apart
        return {
            "edge": edge,
            "estimate": means["estimate"] / apart,
            "whole": total,
            "nonlinear": total - edge.sum(axis=-1),
            "carried": means["carried"] / apart,
            "difference": np.asarray(apart),
        }

    def answer() -> Result:
        samples = {
            "estimate": estimate,
            "exact": exact,
            "carried": carried,
            "apart": some.metrics[0] - some.metrics[1],
        }
        pairs = shown[read[shown]]
        samples = {name: each[pairs] for name, each in samples.items()}
        kept = [numbers(means) for means in means_of(samples, groups[read[shown]].tolist())]
        both = kept[0]["estimate"].ravel(), kept[0]["edge"].ravel()
        agreement = np.asarray(spearmanr(*both).statistic if chosen else np.nan)
        sizes = some.sizes | {"pairs": np.array(len(pairs)), "agreement": agreement}
        origin = {"windows": len(pairs), "errors": spec.Edges.error_counts}
        return spec.Edges.estimated(
            subject, params, kept, sizes,
            texts={"receiver": [head_name(*cell) for cell in receivers], "input": [*SIDES],
                   "sender": names},
            provenance=some.provenance | origin,
        )  # fmt: skip

    for places, prompts in some.batches(shown):
        if read[places].all():
            done += len(places)
            continue
        subject.progress(done, len(shown))
        tokens, metric = torch.from_numpy(np.concatenate(prompts)), some.metric_of(places)
        slopes, streams = _slopes(subject, tokens, metric, receivers, layers)
        written = read_parts(subject.model, tokens, layers[-1])
        changes = [_less_changed(parts, at == 0) for at, parts in enumerate(written)]
        if not names:
            names = [name for parts in changes for part in parts for name in part.names]
            shape = len(carried), len(receivers), len(SIDES), len(names)
            estimate, exact = np.full(shape, np.nan), np.full((*shape[:-1], shape[-1] + 1), np.nan)
            some.go_on(read, estimate=estimate, **{"exact": exact} if chosen else {})
        for row, (layer, _) in enumerate(receivers):
            senders = [part for parts in changes[: layer + 1] for part in parts]
            for side, slope in enumerate(slopes[row]):
                products = torch.cat([_along(slope, part) for part in senders])
                estimate[places, row, side, : len(products)] = products.T.double().cpu().numpy()
        for pair, place in enumerate(places if chosen else ()):
            if read[place]:
                continue
            subject.progress(done + pair, len(shown))
            other, base = (pair, pair + len(places))[::way]
            stream = streams[layers[0]]
            part_moves = [way * replace(part, rows=part.rows[:, [pair]]).written()[:, 0]
                     for parts in changes for part in parts]  # fmt: skip
            moves = torch.cat([*part_moves, (stream[other] - stream[base])[None]])
            own = some.metric_of(places[[pair]])
            change = _moved(subject, chosen[0], tokens[base], stream[base], moves, own)
            exact[place, 0], read[place] = way * change, True
            some.form(answer)
        done += len(places)
        read[places] = True
        some.form(answer)
    return answer()


def _less_changed(parts: Sequence[Part], embeddings: bool) -> list[Part]:
    """Return what was written on clean prompts less what was on changed ones.

    ``parts`` are of both, one after the other; what all ``embeddings`` write is one component.
    """
    halves = [part.rows.chunk(2, dim=1) for part in parts]
    less = [replace(part, rows=clean - changed)
            for part, (clean, changed) in zip(parts, halves, strict=True)]  # fmt: skip
    if not embeddings:
        return less
    return [Part((spec.EMBEDDINGS,), torch.stack([part.rows for part in less]).sum(dim=0))]


def _along(slope: Tensor, part: Part) -> Tensor:
    """Return the products of components and gradients ``[pair, pos, model]``, per component."""
    back = slope[None] if part.out is None else slope[None] @ part.out[:, None].mT
    return (part.rows * back).sum(dim=(2, 3))


def _slopes(
    subject: ExperimentContext,
    tokens: Tensor,
    metric: Metric,
    receivers: Sequence[Cell],
    layers: Sequence[int],
) -> tuple[list[list[Tensor]], dict[int, Tensor]]:
    """Return the gradients of the metric through each receiver's inputs, and the streams.

    Gradients ``[pair, pos, model]`` are by the stream before the receiver's layer, the mean of
    those at both prompts; streams are before each of the layers. ``tokens`` are clean prompts,
    then changed ones.
    """
    edit, seen, slopes = _Zeros(), _Seen(layers), []
    pairs = torch.arange(len(tokens) // 2, device="cpu")
    logits = subject.model.run(tokens, edit, [seen], keep=1, graph=True)
    zeros = [edit.zeros[layer][name] for layer in layers for name in "qkv"]
    gradients = iter(torch.autograd.grad(metric(logits, pairs.repeat(2)).sum(), zeros))
    by_input = {layer: {name: next(gradients) for name in "qkv"} for layer in layers}
    for layer in layers:
        x, made = seen.stream[layer].requires_grad_(), _Seen()
        subject.model.run(tokens, observers=[made], stream=(layer, x), until=layer, graph=True)
        for head in (head for at, head in receivers if at == layer):
            goals = [(rows * by_input[layer][name][:, head]).sum()
                     for name, rows in made.of(head).items()]  # fmt: skip
            own = [torch.autograd.grad(goal, x, retain_graph=True)[0] for goal in goals]
            slopes.append([torch.stack(slope.chunk(2)).mean(dim=0) for slope in own])
        x.requires_grad_(False)
    return slopes, seen.stream


def _moved(
    subject: ExperimentContext,
    receiver: Cell,
    tokens: Tensor,
    base: Tensor,
    moves: Tensor,
    metric: Metric,
) -> np.ndarray:
    """Return the changes of the metric, ``[input, move]``, exactly.

    One input of the receiver is computed from the stream ``base [pos, model]`` with a move added,
    ``moves [move, pos, model]``; its other inputs, and all heads beside it, are as they are.
    """
    (layer, head), run = receiver, subject.model.run
    streams = torch.cat([base[None], base + moves])
    size, inputs = texts_per_run(subject, len(tokens)), list[dict[str, Tensor]]()
    for some in streams.split(size):
        seen = _Seen()
        texts = tokens.expand(len(some), -1)
        run(texts, observers=[seen], stream=(layer, some), until=layer)
        inputs.append(seen.of(head))
    made = {name: torch.cat([values[name] for values in inputs]) for name in "qkv"}
    metrics = np.empty((len(SIDES), len(streams)))
    for side, name in enumerate(SIDES.values()):
        for some in torch.arange(len(streams), device="cpu").split(size):
            as_it_is = torch.zeros_like(some)
            mixed = {
                letter: rows[some if letter == name else as_it_is] for letter, rows in made.items()
            }
            start = layer, base.expand(len(some), -1, -1)
            edit, texts = SetInputs(layer, head, **mixed), tokens.expand(len(some), -1)
            logits = run(texts, edit, keep=1, stream=start)
            own = metric(logits, torch.zeros(len(some), dtype=torch.int64, device="cpu"))
            metrics[side, some.numpy()] = own.double().cpu().numpy()
    return metrics[:, 1:] - metrics[:, :1]
