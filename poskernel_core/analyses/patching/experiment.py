"""Run a prompt with what heads do in another one."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from poskernel_core.analyses.base import UNKNOWN, ExperimentContext
from poskernel_core.analyses.kernel_only.experiment import Outputs
from poskernel_core.analyses.patching import spec
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.interventions import SetOutputs
from poskernel_core.forward.observers import Batch, Observer

LEAST = 0.1
"""Smallest difference of the metric between the prompts, in nats."""

TOKENS = 1024
"""Tokens per forward pass, if the execution does not say."""

Metric = Callable[[Tensor], Tensor]
"""Reads a number for each text off logits ``[text, pos, vocab]``, of all or the last positions."""


class _Pair(Observer):
    """Two prompts run together, the one that others' heads are put into first.

    Attributes:
        stream: its residual stream before each layer, ``[1, pos, model]``.
        outputs: its heads' outputs, ``[head, pos, d]`` by layer.
        patched: the outputs with parts of the other prompt's, by part and layer.
        by_key: its pattern ``[head, query, key]`` in ``layer``, and the change of the values to
            those of the other prompt, ``[head, key, d]``.
        gradient: of its metric by the heads' outputs, ``[head, pos, d]`` by layer.
        ends: its metric, and the other prompt's.
    """

    wants_patterns = True

    def __init__(
        self,
        subject: ExperimentContext,
        params: spec.PatchParams,
        parts: Sequence[str],
        layer: int | None = None,
    ) -> None:
        self.subject, self.params, self.parts, self.layer = subject, params, parts, layer
        self.stream: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.patched: dict[str, dict[int, Tensor]] = {part: {} for part in parts}
        prompts = _tokens(subject, params)
        # the clean prompt's place, and the changed one's
        self.places = [1, 0] if params.direction == spec.INTO_CHANGED else [0, 1]
        both = torch.tensor([prompts[place] for place in self.places], device="cpu")
        self.tokens, self.keep = both[:1], None if params.metric == "loss" else 1
        edit = Outputs()
        logits = subject.model.run(both, edit, [self], keep=self.keep, graph=True)
        likeliest = logits[self.places, -1].argmax(dim=-1).tolist()
        self.metric, answers = _metric(subject, params, prompts[0], likeliest)
        found = self.metric(logits)
        self.ends = found.tolist()
        clean, changed = (self.ends[place] for place in self.places)
        if not abs(clean - changed) >= LEAST:
            raise BadRequest(
                f"Expected a metric that differs between the prompts by {LEAST:g} nats or more, "
                f"got {brief(clean)} and {brief(changed)}: choose other answers, another metric, "
                "or other prompts."
            )
        gradients = torch.autograd.grad(found[0], [*edit.zeros.values()])
        self.gradient = {at: each[0] for at, each in zip(edit.zeros, gradients, strict=True)}
        self.metrics = {"clean_metric": np.array(clean), "changed_metric": np.array(changed)}
        self.texts = {
            "changed_tokens": subject.decode(prompts[1]),
            "answers": subject.decode(answers),
        }

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        self.stream[layer] = x[:1].detach()

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self._values = repeat_kv(call.v.detach(), call.q.shape[1], 1)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self._pattern = block.pattern.detach().to(self._values)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        (own, other), (values, its_values), (pattern, its) = z.detach(), self._values, self._pattern
        self.outputs[layer] = own
        if self.layer in (None, layer):
            made = {"output": other, "pattern": its @ values, "values": pattern @ its_values}
            for part in self.parts:
                self.patched[part][layer] = made[part]
        if layer == self.layer:
            self.by_key = pattern, its_values - values

    def with_heads(self, layer: int, part: str, *groups: list[int]) -> Iterator[Tensor]:
        """Yield a layer's outputs with a part of the other prompt's, in each group of heads."""
        for heads in groups:
            z = self.outputs[layer].clone()
            z[heads] = self.patched[part][layer][heads]
            yield z

    def effects(self, layer: int, outputs: Iterator[Tensor]) -> np.ndarray:
        """Return the effects of outputs ``[head, pos, d]``, each in the place of a layer's own."""
        size = self.subject.batch or max(1, TOKENS // self.tokens.shape[1])
        found: list[float] = []
        while batch := [*islice(outputs, size)]:
            count = len(batch)
            logits = self.subject.model.run(
                self.tokens.expand(count, -1),
                SetOutputs(layer, torch.stack(batch)),
                keep=self.keep,
                stream=(layer, self.stream[layer].expand(count, -1, -1)),
            )
            found += self.metric(logits).tolist()
        return (np.array(found) - self.ends[0]) / (self.ends[1] - self.ends[0])

    def attributions(self, layer: int, outputs: Iterator[Tensor]) -> np.ndarray:
        """Return first-order estimates of the effects."""
        own, gradient = self.outputs[layer], self.gradient[layer]
        found = [float(((z - own) * gradient).sum()) for z in outputs]
        return np.array(found) / (self.ends[1] - self.ends[0])


def patch_heads(subject: ExperimentContext, params: spec.PatchParams) -> Result:
    """Put every head of one prompt into the run of the other; see :class:`spec.PatchHeads`."""
    geometry, what = subject.model.geometry, params.what
    pair, layers = _Pair(subject, params, [what]), geometry.with_heads
    effect, attribution = np.full((2, geometry.n_layers, geometry.n_heads), np.nan)
    groups = [[head] for head in range(geometry.n_heads)]

    def result() -> Result:
        values = {"effect": effect.copy(), "attribution": attribution} | pair.metrics
        return spec.PatchHeads.result(
            params, values, texts=pair.texts, provenance={"errors": UNKNOWN}
        )

    for layer in layers:
        attribution[layer] = pair.attributions(layer, pair.with_heads(layer, what, *groups))
    for done, layer in enumerate(layers):
        subject.progress(done, len(layers))
        subject.form(done + 1, result())
        effect[layer] = pair.effects(layer, pair.with_heads(layer, what, *groups))
    return result()


def patch_positions(subject: ExperimentContext, params: spec.PatchPositionsParams) -> Result:
    """Put a head, or a layer, into the other run by position; see :class:`spec.PatchPositions`."""
    geometry, what = subject.model.geometry, params.what
    found = re.fullmatch(r"[Ll]([0-9]{1,6})", params.head.strip())
    if found and int(found[1]) in geometry.with_heads:
        layer, heads = int(found[1]), [*range(geometry.n_heads)]
    else:
        layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
        heads = [head]
    subject.progress(0, 2)
    pair = _Pair(subject, params, spec.PARTS, layer)
    pattern, change = pair.by_key

    def positions() -> Iterator[Tensor]:
        for at in range(pair.tokens.shape[1]):
            z = pair.outputs[layer].clone()
            if what == "values":
                z[heads] += pattern[heads, :, at, None] * change[heads, None, at]
            else:
                z[heads, at] = pair.patched[what][layer][heads, at]
            yield z

    parts = (z for part in spec.PARTS for z in pair.with_heads(layer, part, heads))
    part_effect = pair.effects(layer, parts)
    subject.progress(1, 2)
    values = {
        "effect": pair.effects(layer, positions()),
        "attribution": pair.attributions(layer, positions()),
        "part_effect": part_effect,
    }
    texts = pair.texts | {"part": list(spec.PARTS)}
    return spec.PatchPositions.result(
        params, values | pair.metrics, texts=texts, provenance={"errors": UNKNOWN}
    )


def _tokens(subject: ExperimentContext, params: spec.PatchParams) -> tuple[list[int], list[int]]:
    assert subject.encode is not None  # a typed text needs a tokenizer, and is read before
    clean = subject.windows[0].tolist()
    changed = [*clean[: subject.start_token], *subject.encode(params.changed)]
    if clean == changed:
        raise BadRequest("Expected two different prompts, got the same twice: change a word.")
    if len(clean) != len(changed):
        pairs = enumerate(zip(clean, changed, strict=False))
        at = next((n for n, (a, b) in pairs if a != b), min(len(clean), len(changed)))
        one, two = (
            repr(subject.decode(ids[at : at + 1])[0]) if ids[at:] else "its end"
            for ids in (clean, changed)
        )
        raise BadRequest(
            f"Expected prompts of equally many tokens, got {len(clean)} and {len(changed)}; they "
            f"part at position {at}, with {one} in the clean and {two} in the changed one: choose "
            "words of as many tokens."
        )
    return clean, changed


def _metric(
    subject: ExperimentContext, params: spec.PatchParams, clean: list[int], likeliest: list[int]
) -> tuple[Metric, list[int]]:
    """Return what reads the metric off logits, and the ids of its answers."""
    if params.metric == "loss":
        return lambda logits: _losses(logits, torch.tensor(clean, device="cpu")), []
    assert subject.single_id is not None
    one, two = (
        _answer(subject.single_id, text) if text else own
        for text, own in zip((params.answer, params.other_answer), likeliest, strict=True)
    )
    if params.metric == "log-probability":
        return lambda logits: logits[:, -1].log_softmax(dim=-1)[:, one], [one]
    if one == two:
        raise BadRequest(
            f"Expected two different answers, got {subject.decode([one])[0]!r} for both prompts: "
            "name another one, or choose the log probability of one answer."
        )
    return lambda logits: logits[:, -1, one] - logits[:, -1, two], [one, two]


def _answer(single_id: Callable[[str], int], text: str) -> int:
    """Return the id of an answer, tried with a leading space if it is no token without one."""
    try:
        return single_id(text)
    except BadRequest:
        with suppress(BadRequest):
            return single_id(f" {text}")
        raise


def _losses(logits: Tensor, clean: Tensor) -> Tensor:
    right = clean[1:].to(logits.device).expand(len(logits), -1)
    return cross_entropy(logits[:, :-1].transpose(1, 2), right, reduction="none").mean(dim=1)
