"""Run a prompt with what heads do in another one."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from poskernel_core.analyses.base import UNKNOWN, ExperimentContext, Progress, Statistics
from poskernel_core.analyses.kernel_only.experiment import Outputs
from poskernel_core.analyses.patching.spec import (
    INTO_CHANGED,
    PARTS,
    PatchHeads,
    PatchParams,
    PatchPositions,
    PatchPositionsParams,
)
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.interventions import SetOutputs
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.models.geometry import Geometry

LEAST = 0.1
"""Smallest difference of the metric between the prompts, in nats."""

TOKENS = 1024
"""Tokens per forward pass, if the execution does not say."""

Metric = Callable[[Tensor], Tensor]


class _Both(Observer):
    """Keeps what heads do in two prompts: the one that is run, and the other one.

    Attributes:
        stream: the stream of the first before each layer, ``[1, pos, model]``.
        outputs: the heads' outputs in the first, ``[head, pos, d]``.
        patched: the outputs with each part of the second, by part and layer.
        by_key: the pattern ``[head, query, key]`` of the first in ``layer``, and the change of the
            values ``[head, key, d]`` from the first to the second.
    """

    wants_patterns = True

    def __init__(self, parts: Sequence[str], layer: int | None = None) -> None:
        self.parts, self.layer = parts, layer
        self.stream: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.patched: dict[str, dict[int, Tensor]] = {part: {} for part in parts}
        self.by_key: tuple[Tensor, Tensor] | None = None

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        self.stream[layer] = x[:1].detach()

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self._values = repeat_kv(call.v.detach(), call.q.shape[1], 1)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self._pattern = block.pattern.detach().to(self._values)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        (own, other), (value, others) = z.detach(), self._values
        pattern, its = self._pattern
        self.outputs[layer] = own
        made = {"output": other, "pattern": its @ value, "values": pattern @ others}
        if self.layer in (None, layer):
            for part in self.parts:
                self.patched[part][layer] = made[part]
        if layer == self.layer:
            self.by_key = pattern, others - value


@dataclass(frozen=True)
class _Pair:
    """Two prompts, and what was seen when both were run.

    Attributes:
        tokens: those of the prompt that is run, ``[1, pos]``.
        metric: reads logits ``[text, pos, vocab]``, all positions or the last one.
        keep: how many of the last positions it reads; None: all.
        ends: the metric of the prompt that is run, and of the other one.
        gradient: of the metric by the heads' outputs, ``[head, pos, d]`` by layer.
        seen: what heads do.
        told: what results say besides effects.
    """

    tokens: Tensor
    metric: Metric
    keep: int | None
    ends: tuple[float, float]
    gradient: dict[int, Tensor]
    seen: _Both
    told: dict[str, Any]

    def share(self, change: np.ndarray) -> np.ndarray:
        """Return changes of the metric as shares of the difference between the prompts."""
        return np.asarray(change / (self.ends[1] - self.ends[0]))


def patch_heads(
    subject: ExperimentContext, statistics: Statistics, params: PatchParams, progress: Progress
) -> Result:
    """Put every head of one prompt into the run of the other; see :class:`PatchHeads`."""
    geometry = subject.model.geometry
    pair = _run_both(subject, params, _Both([params.what]))
    effect, attribution = np.full((2, geometry.n_layers, geometry.n_heads), np.nan)

    def result() -> Result:
        values = {"effect": effect.copy(), "attribution": attribution}
        return _result(PatchHeads, params, pair, values)

    def each(layer: int) -> Iterator[Tensor]:
        for head in range(geometry.n_heads):
            z = pair.seen.outputs[layer].clone()
            z[head] = pair.seen.patched[params.what][layer][head]
            yield z

    for layer in geometry.with_heads:
        attribution[layer] = _attributions(pair, layer, each(layer))
    for done, layer in enumerate(geometry.with_heads):
        subject.form(done + 1, result())
        progress(done, len(geometry.with_heads))
        effect[layer] = _effects(subject, pair, layer, each(layer))
    return result()


def patch_positions(
    subject: ExperimentContext,
    statistics: Statistics,
    params: PatchPositionsParams,
    progress: Progress,
) -> Result:
    """Put a head, or a layer, into the other run by position; see :class:`PatchPositions`."""
    layer, heads = _heads_of(params.head, subject.model.geometry)
    pair = _run_both(subject, params, seen := _Both(PARTS, layer))
    own, patched = seen.outputs[layer], {part: seen.patched[part][layer] for part in PARTS}
    assert seen.by_key is not None
    pattern, change = seen.by_key

    def parts() -> Iterator[Tensor]:
        for part in PARTS:
            z = own.clone()
            z[heads] = patched[part][heads]
            yield z

    def positions() -> Iterator[Tensor]:
        for at in range(own.shape[1]):
            z = own.clone()
            if params.what == "values":
                z[heads] += pattern[heads, :, at, None] * change[heads, None, at]
            else:
                z[heads, at] = patched[params.what][heads, at]
            yield z

    progress(0, 2)
    part_effect = _effects(subject, pair, layer, parts())
    progress(1, 2)
    values = {
        "effect": _effects(subject, pair, layer, positions()),
        "attribution": _attributions(pair, layer, positions()),
        "part_effect": part_effect,
    }
    return _result(PatchPositions, params, pair, values, {"part": list(PARTS)})


def _heads_of(text: str, geometry: Geometry) -> tuple[int, list[int]]:
    """Return the layer and the heads that a head such as L0H3, or a layer such as L0, names."""
    found = re.fullmatch(r"[Ll]([0-9]{1,6})", text.strip())
    if found and int(found[1]) in geometry.with_heads:
        return int(found[1]), [*range(geometry.n_heads)]
    layer, head = parse_cell(text, geometry.n_layers, geometry.n_heads)
    return layer, [head]


def _effects(
    subject: ExperimentContext, pair: _Pair, layer: int, outputs: Iterator[Tensor]
) -> np.ndarray:
    """Return the effects of outputs ``[head, pos, d]`` of a layer, each in the place of its own."""
    size = subject.batch or max(1, TOKENS // pair.tokens.shape[1])
    found: list[float] = []
    while batch := [*islice(outputs, size)]:
        count = len(batch)
        logits = subject.model.run(
            pair.tokens.expand(count, -1),
            SetOutputs(layer, torch.stack(batch)),
            keep=pair.keep,
            stream=(layer, pair.seen.stream[layer].expand(count, -1, -1)),
        )
        found += pair.metric(logits).tolist()
    return pair.share(np.array(found) - pair.ends[0])


def _attributions(pair: _Pair, layer: int, outputs: Iterable[Tensor]) -> np.ndarray:
    """Return first-order estimates of :func:`_effects`."""
    own, gradient = pair.seen.outputs[layer], pair.gradient[layer]
    return pair.share(np.array([float(((z - own) * gradient).sum()) for z in outputs]))


def _run_both(subject: ExperimentContext, params: PatchParams, seen: _Both) -> _Pair:
    """Run both prompts, and take the gradient of the metric of the one that is run."""
    clean, changed = _tokens(subject, params)
    into_changed = params.direction == INTO_CHANGED
    both = torch.tensor([changed, clean] if into_changed else [clean, changed])
    keep, edit = None if params.metric == "loss" else 1, Outputs()
    logits = subject.model.run(both, edit, [seen], keep=keep, graph=True)
    last = logits[:, -1].detach()
    likeliest = last.argmax(dim=-1).tolist()[:: -1 if into_changed else 1]
    metric, answers = _metric(subject, params, torch.tensor(clean), likeliest)
    found = metric(logits)
    ends = found[0].item(), found[1].item()
    told = dict(zip(("changed", "clean") if into_changed else ("clean", "changed"), ends))
    if not abs(ends[1] - ends[0]) >= LEAST:
        raise BadRequest(
            f"Expected a metric that differs between the prompts by {LEAST:g} nats or more, got "
            f"{brief(told['clean'])} and {brief(told['changed'])}: choose other answers, another "
            "metric, or other prompts."
        )
    gradients = torch.autograd.grad(found[0], [*edit.zeros.values()])
    by_layer = {at: g[0] for at, g in zip(edit.zeros, gradients, strict=True)}
    values = {f"{name}_metric": np.array(value) for name, value in told.items()}
    texts = {"changed_tokens": subject.decode(changed), "answers": subject.decode(answers)}
    told = {"values": values, "texts": texts}
    return _Pair(both[:1], metric, keep, ends, by_layer, seen, told)


def _tokens(subject: ExperimentContext, params: PatchParams) -> tuple[list[int], list[int]]:
    """Return the token ids of the clean and of the changed prompt.

    Raises:
        BadRequest: they are equal, or not equally long.
    """
    assert subject.encode is not None  # a typed text needs a tokenizer, and is read before
    clean = subject.windows[0].tolist()
    changed = [*clean[: subject.start_token], *subject.encode(params.changed)]
    if clean == changed:
        raise BadRequest("Expected two different prompts, got the same twice: change a word.")
    if len(clean) != len(changed):
        shorter = min(len(clean), len(changed))
        at = next((n for n in range(shorter) if clean[n] != changed[n]), shorter)
        words = [subject.decode(ids[at : at + 1]) or ["its end"] for ids in (clean, changed)]
        (one,), (two,) = words
        raise BadRequest(
            f"Expected prompts of equally many tokens, got {len(clean)} and {len(changed)}; they "
            f"part at position {at}, with {one!r} in the clean and {two!r} in the changed one: "
            "choose words of as many tokens."
        )
    return clean, changed


def _metric(
    subject: ExperimentContext, params: PatchParams, clean: Tensor, likeliest: list[int]
) -> tuple[Metric, list[int]]:
    """Return what reads the metric off logits, ``[text]``, and the ids of its answers."""
    if params.metric == "loss":
        return lambda logits: _losses(logits, clean), []
    assert subject.single_id is not None
    typed = params.answer, params.other_answer
    ids = [
        subject.single_id(text) if text else own
        for text, own in zip(typed, likeliest, strict=True)
    ]
    if params.metric == "log-probability":
        return lambda logits: logits[:, -1].log_softmax(dim=-1)[:, ids[0]], ids[:1]
    if ids[0] == ids[1]:
        raise BadRequest(
            f"Expected two different answers, got {subject.decode(ids[:1])[0]!r} for both prompts: "
            "name another one, or choose the log probability of one answer."
        )
    return lambda logits: logits[:, -1, ids[0]] - logits[:, -1, ids[1]], ids


def _losses(logits: Tensor, clean: Tensor) -> Tensor:
    right = clean[1:].to(logits.device).expand(len(logits), -1)
    return cross_entropy(logits[:, :-1].transpose(1, 2), right, reduction="none").mean(dim=1)


def _result(
    question: type[PatchHeads] | type[PatchPositions],
    params: PatchParams,
    pair: _Pair,
    values: dict[str, np.ndarray],
    texts: dict[str, list[str]] | None = None,
) -> Result:
    return question.result(
        params,
        values | pair.told["values"],
        texts=pair.told["texts"] | (texts or {}),
        provenance={"errors": UNKNOWN},
    )
