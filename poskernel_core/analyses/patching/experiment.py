"""Run prompts with what heads do in others: a pair of them, or a set of pairs."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from poskernel_core.analyses.base import UNKNOWN, ExperimentContext
from poskernel_core.analyses.kernel_only.experiment import Outputs
from poskernel_core.analyses.patching import spec
from poskernel_core.analyses.patching.pairs import (
    END,
    PairsParams,
    TokenPair,
    answer_id,
    by_length,
    groups_of_pairs,
    in_common,
    token_pairs,
)
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import largest_first, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.interventions import SetOutputs
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.readout import losses
from poskernel_core.statistics.moments import means_of

LEAST = 0.1
"""Smallest difference of the metric between the prompts, in nats."""

TOKENS = 1024
"""Tokens per forward pass, if the execution does not say."""

Metric = Callable[[Tensor, Tensor], Tensor]
"""Reads a number for each text off logits ``[text, pos, vocab]``, given the pair of each text."""

SomePairs = tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]
"""Numbers of equally long pairs, and the ids of their clean and changed prompts ``[pair, pos]``."""

Spans = Sequence[tuple[slice, slice]]
"""For each pair, some tokens of the prompt that is run, and as many of the other one."""


class _Pairs(Observer):
    """Both prompts of equally long pairs run together, those first that heads are put into.

    Attributes:
        tokens: those of the prompts that are run, ``[pair, pos]``.
        stream: their residual stream before each layer, ``[pair, pos, model]``.
        outputs: their heads' outputs, ``[pair, head, pos, d]`` by layer.
        patched: the outputs with parts of the other prompts', by part and layer.
        by_key: patterns ``[pair, head, query, key]``, values and the other prompts' values ``[pair,
            head, key, d]`` of the only layer.
        every: the outputs of both, ``[prompt, head, pos, d]`` by layer.
        gradients: of the metrics by them, alike.
        ends: the metric of the prompts that are run, and of the other ones, ``[2, pair]``.
    """

    wants_patterns = True

    def __init__(
        self,
        subject: ExperimentContext,
        direction: str,
        prompts: tuple[np.ndarray, np.ndarray],
        metric_of: Callable[[Tensor], Metric],
        parts: Sequence[str],
        layers: Collection[int],
        graph: bool = True,
        keep: int | None = 1,
    ) -> None:
        self.subject, self.parts, self.layers = subject, parts, layers
        self.stream: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.patched: dict[str, dict[int, Tensor]] = {part: {} for part in parts}
        # the places of clean and changed prompts
        self.places = [1, 0] if direction == spec.INTO_CHANGED else [0, 1]
        both = torch.from_numpy(np.concatenate([prompts[place] for place in self.places]))
        self.tokens, self.keep = both.chunk(2)[0], keep
        pairs = torch.arange(len(self.tokens), device="cpu")
        edit = Outputs()
        logits = subject.model.run(both, edit, [self], keep=keep, graph=graph)
        self.metric = metric_of(torch.stack(logits.detach().chunk(2))[self.places])
        metrics = self.metric(logits, pairs.repeat(2)).view(2, -1)
        self.ends = metrics.detach().double().cpu().numpy()
        self.every = edit.outputs
        if graph:
            gradients = torch.autograd.grad(metrics.sum(), [*edit.zeros.values()])
            self.gradients = dict(zip(edit.zeros, gradients, strict=True))

    @property
    def difference(self) -> np.ndarray:
        """By how much the metric of the other prompt is higher, ``[pair]``."""
        return np.asarray(self.ends[1] - self.ends[0])

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer in self.layers:
            self.stream[layer] = x.detach().chunk(2)[0]

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self._values = repeat_kv(call.v.detach(), call.q.shape[1], 1)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self._pattern = block.pattern.detach().to(self._values)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        if layer not in self.layers:
            return
        own, other = z.detach().chunk(2)
        (values, its_values), (pattern, its) = self._values.chunk(2), self._pattern.chunk(2)
        self.outputs[layer] = own
        made = {
            "output": lambda: other,
            "pattern": lambda: its @ values,
            "values": lambda: pattern @ its_values,
        }
        for part in self.parts:
            self.patched[part][layer] = made[part]()
        if len(self.layers) == 1:
            self.by_key = pattern, values, its_values

    def with_heads(self, layer: int, part: str, *groups: list[int]) -> Iterator[Tensor]:
        """Yield a layer's outputs with a part of the other prompt's, in each group of heads."""
        for heads in groups:
            z = self.outputs[layer].clone()
            z[:, heads] = self.patched[part][layer][:, heads]
            yield z

    def with_spans(
        self, layer: int, part: str, heads: list[int], spans: Sequence[Spans]
    ) -> Iterator[Tensor]:
        """Yield a layer's outputs with a part of the other prompt's, at each span alone."""
        pattern, values, its_values = self.by_key
        for span in spans:
            z = self.outputs[layer].clone()
            for pair, (own, other) in enumerate(span):
                if part == "values":
                    change = its_values[pair, heads, other] - values[pair, heads, own]
                    z[pair, heads] += pattern[pair, heads, :, own] @ change
                else:
                    z[pair, heads, own] = self.patched[part][layer][pair, heads, other]
            yield z

    def changes(self, layer: int, outputs: Iterator[Tensor]) -> np.ndarray:
        """Return how the metric changes, ``[pair, output]``, in nats.

        Runs begin at the layer, with outputs ``[pair, head, pos, d]`` in the place of its own.
        """
        size = texts_per_run(self.subject, self.tokens.shape[1])
        pairs, differences = torch.arange(len(self.tokens), device="cpu"), list[np.ndarray]()
        while batch := [*islice(outputs, max(1, size // len(pairs)))]:
            count = len(batch)
            logits = self.subject.model.run(
                self.tokens.repeat(count, 1),
                SetOutputs(layer, torch.cat(batch)),
                keep=self.keep,
                stream=(layer, self.stream[layer].repeat(count, 1, 1)),
            )
            metrics = self.metric(logits, pairs.repeat(count)).view(count, -1)
            differences += [*(metrics.double().cpu().numpy() - self.ends[0])]
        return np.stack(differences, axis=1)

    def attributions(self, layer: int, outputs: Iterator[Tensor]) -> np.ndarray:
        """Return first-order estimates of the changes, ``[pair, output]``, in nats."""
        own, gradient = self.outputs[layer], self.gradients[layer].chunk(2)[0]
        estimates = [((z - own) * gradient).sum(dim=(1, 2, 3)) for z in outputs]
        return torch.stack(estimates, dim=1).double().cpu().numpy()

    def carried(self, layer: int) -> np.ndarray:
        """Estimate what each head adds to the clean metric less the changed one, ``[pair, head]``.

        It is the difference of its outputs times the mean gradient of both prompts, in nats.
        """
        halves = self.every[layer].chunk(2)
        clean, changed = (halves[place] for place in self.places)
        slope = sum(self.gradients[layer].chunk(2)) / 2
        return (slope * (clean - changed)).sum(dim=(2, 3)).double().cpu().numpy()


def texts_per_run(subject: ExperimentContext, tokens: int) -> int:
    """Return the number of texts in one run, given the tokens of each."""
    return subject.batch or max(1, TOKENS // tokens)


def patch_heads(subject: ExperimentContext, params: spec.PatchHeadsParams) -> Result:
    """Put every head of one prompt into the run of the other; see :class:`spec.PatchHeads`."""
    if params.of_set:
        return _heads_of_set(subject, params)
    geometry, what = subject.model.geometry, params.what
    pair, beside = _one_pair(subject, params, [what], geometry.with_heads)
    effect, attribution = np.full((2, geometry.n_layers, geometry.n_heads), np.nan)
    groups = [[head] for head in range(geometry.n_heads)]

    def result() -> Result:
        values = {"effect": effect.copy(), "attribution": attribution} | beside["values"]
        return spec.PatchHeads.result(params, **beside | {"values": values})

    for layer in geometry.with_heads:
        changes = pair.attributions(layer, pair.with_heads(layer, what, *groups))
        attribution[layer] = (changes / pair.difference)[0]
    for done, layer in enumerate(geometry.with_heads):
        subject.progress(done, len(geometry.with_heads))
        subject.form(done + 1, result())
        changes = pair.changes(layer, pair.with_heads(layer, what, *groups))
        effect[layer] = (changes / pair.difference)[0]
    return result()


def patch_positions(subject: ExperimentContext, params: spec.PatchPositionsParams) -> Result:
    """Put a head, or a layer, into the other run by position; see :class:`spec.PatchPositions`."""
    geometry, what = subject.model.geometry, params.what
    match = re.fullmatch(r"[Ll]([0-9]{1,6})", params.head.strip())
    if match and int(match[1]) in geometry.with_heads:
        layer, heads = int(match[1]), [*range(geometry.n_heads)]
    else:
        layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
        heads = [head]
    if params.of_set:
        return _positions_of_set(subject, params, layer, heads)
    subject.progress(0, 2)
    pair, beside = _one_pair(subject, params, spec.PARTS, [layer])
    part_effect = pair.changes(layer, _parts(pair, layer, heads))
    subject.progress(1, 2)
    places = [[(slice(at, at + 1),) * 2] for at in range(pair.tokens.shape[1])]
    changes = {
        "effect": pair.changes(layer, pair.with_spans(layer, what, heads, places)),
        "attribution": pair.attributions(layer, pair.with_spans(layer, what, heads, places)),
        "part_effect": part_effect,
    }
    values = {name: (change / pair.difference)[0] for name, change in changes.items()}
    texts = beside["texts"] | {"part": list(spec.PARTS)}
    beside |= {"values": values | beside["values"], "texts": texts}
    return spec.PatchPositions.result(params, **beside)


def _parts(pairs: _Pairs, layer: int, heads: list[int]) -> Iterator[Tensor]:
    return (z for part in spec.PARTS for z in pairs.with_heads(layer, part, heads))


def _one_pair(
    subject: ExperimentContext,
    params: spec.PatchParams,
    parts: Sequence[str],
    layers: Collection[int],
) -> tuple[_Pairs, dict[str, Any]]:
    """Run the two prompts that were typed; return also what every answer about them has."""
    prompts, answers = _tokens(subject, params), list[int]()

    def metric_of(logits: Tensor) -> Metric:
        metric, ids = _metric(subject, params, prompts[0], logits[:, 0, -1].argmax(-1).tolist())
        answers.extend(ids)
        return metric

    both = np.array([prompts[0]]), np.array([prompts[1]])
    keep = None if params.metric == "loss" else 1
    pair = _Pairs(subject, params.direction, both, metric_of, parts, layers, keep=keep)
    clean, changed = (float(pair.ends[place, 0]) for place in pair.places)
    if not abs(clean - changed) >= LEAST:
        raise BadRequest(
            f"Expected a metric that differs between the prompts by {LEAST:g} nats or more, got "
            f"{brief(clean)} and {brief(changed)}: choose other answers, another metric, or other "
            "prompts."
        )
    return pair, {
        "values": {"clean_metric": np.array(clean), "changed_metric": np.array(changed)},
        "texts": {
            "changed_tokens": subject.decode(prompts[1]),
            "answers": subject.decode(answers),
        },
        "provenance": {"errors": UNKNOWN},
    }


def _tokens(subject: ExperimentContext, params: spec.PatchParams) -> tuple[list[int], list[int]]:
    assert subject.encode is not None  # a typed text needs a tokenizer, and is read before
    clean = subject.windows[0].tolist()
    changed = [*clean[: subject.start_token], *subject.encode(params.changed)]
    if clean == changed:
        raise BadRequest("Expected two different prompts, got the same twice: change a word.")
    if len(clean) != len(changed):
        at = in_common(clean, changed)
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
        right = torch.tensor([clean], device="cpu")
        return lambda logits, _: losses(logits, right.expand(len(logits), -1)).mean(dim=1), []
    one, two = (
        answer_id(subject, text) if text else own
        for text, own in zip((params.answer, params.other_answer), likeliest, strict=True)
    )
    if params.metric == "difference" and one == two:
        raise BadRequest(
            f"Expected two different answers, got {subject.decode([one])[0]!r} for both prompts: "
            "name another one, or choose the log probability of one answer."
        )
    answers = [one] if params.metric == "log-probability" else [one, two]
    return _of_answers(torch.tensor([answers], device="cpu")), answers


def _of_answers(answers: Tensor) -> Metric:
    """Return the metric of answers ``[pair, answer]``: a difference, or a log probability."""

    def metric(logits: Tensor, pairs: Tensor) -> Tensor:
        last = logits[:, -1] if answers.shape[1] == 2 else logits[:, -1].log_softmax(dim=-1)
        read = last.gather(1, answers[pairs].to(last.device))
        return read[:, 0] - (read[:, 1] if answers.shape[1] == 2 else 0)

    return metric


class PairSet:
    """A set of pairs, and the metric of each clean and each changed prompt, ``[2, pair]``."""

    def __init__(
        self,
        subject: ExperimentContext,
        params: PairsParams,
        metric: str = "difference",
        direction: str = "changed-into-clean",
    ) -> None:
        self.subject, self.params = subject, params
        self.metric, self.direction = metric, direction
        self.pairs = token_pairs(subject, params)
        self.metrics = np.full((2, len(self.pairs)), np.nan)
        self.sign = 1 if direction == spec.INTO_CHANGED else -1
        self._read, self._kept, self._tenths = np.zeros(0), dict[str, np.ndarray](), 0

    @property
    def shown(self) -> np.ndarray:
        """The numbers of the pairs that show the behaviour, as far as they were run."""
        return np.flatnonzero(self.metrics[0] - self.metrics[1] >= LEAST)

    @property
    def sizes(self) -> dict[str, np.ndarray]:
        """How many pairs are used, and how many are not."""
        run, used = np.isfinite(self.metrics[0]).sum(), len(self.shown)
        return {"pairs": np.array(used), "left_out": np.array(run - used)}

    @property
    def provenance(self) -> dict[str, int]:
        """What stands in place of windows of text: pairs, and the longest prompt's tokens."""
        lengths = [len(self.pairs[number].clean) for number in self.shown]
        return {"windows": len(lengths), "context": max(lengths)}

    def groups(self, fewest: int = 1) -> np.ndarray:
        """Return the group of each pair that shows the behaviour, ``[pair]``.

        Raises:
            BadRequest: there are fewer groups.
        """
        groups = groups_of_pairs([self.pairs[number] for number in self.shown])
        if len(np.unique(groups)) < fewest:
            of = "of two groups or more " * (fewest > 1)
            raise BadRequest(
                f"Expected pairs {of}whose clean prompt prefers its answer by {LEAST:g} nats more "
                f"than the changed one, got {len(groups):,} such of "
                f"{counted(len(self.pairs), 'pair')}: add pairs, or choose other answers, or other "
                "prompts."
            )
        return groups

    def go_on(self, read: np.ndarray, **arrays: np.ndarray) -> None:
        """Fill in what an interrupted run has saved: which pairs were read, and what came of it.

        The experiment changes ``read [pair]``, at first none, and ``arrays`` in place.
        """
        self._read, self._kept = read, {"metrics": self.metrics, "read": read, **arrays}
        saved = self.subject.saved
        if {n: a.shape for n, a in saved.items()} == {n: a.shape for n, a in self._kept.items()}:
            for name, array in self._kept.items():
                array[...] = saved[name]

    def save(self) -> bool:
        """Save what was read after each tenth of the pairs; return whether that was done."""
        tenths, before = 10 * int(self._read.sum()) // len(self._read), self._tenths
        if tenths > before and not self._read.all():
            self._tenths = tenths
            self.subject.save(self._kept)
        return self._tenths > before

    def form(self, answer: Callable[[], Result]) -> None:
        """Save what was read, and store the answer so far once it has errors and shares."""
        read = self._read[self.shown]
        if self.save() and not read.all() and len(np.unique(self.groups()[read])) > 1:
            result = answer()
            if not result.lows["difference"] <= spec.CLEAR:
                self.subject.form(int(read.sum()), result)

    def batches(self, among: np.ndarray | None = None) -> list[SomePairs]:
        """Return batches of equally long pairs: their numbers, and the ids of both prompts."""
        among = np.arange(len(self.pairs)) if among is None else among
        pairs = [self.pairs[number] for number in among]
        batches = by_length(pairs, lambda length: texts_per_run(self.subject, 2 * length))
        return [(among[numbers], prompts) for numbers, prompts in batches]

    def metric_of(self, numbers: np.ndarray) -> Metric:
        """Return the metric of some pairs, which are counted from 0."""
        answers = [(self.pairs[at].answer, self.pairs[at].other_answer) for at in numbers]
        few = 1 if self.metric == "log-probability" else 2
        return _of_answers(torch.tensor(answers, device="cpu")[:, :few])

    def run(
        self, batch: SomePairs, parts: Sequence[str], layers: Collection[int], graph: bool = True
    ) -> _Pairs:
        """Run a batch."""
        numbers, prompts = batch
        metric = self.metric_of(numbers)
        some = self.subject, self.direction, prompts, lambda _: metric
        pairs = _Pairs(*some, parts, layers, graph)
        self.metrics[:, numbers] = pairs.ends[pairs.places]
        return pairs

    def carried(self) -> np.ndarray:
        """Run all pairs, and estimate what each head carries, in nats, ``[pair, layer, head]``."""
        geometry = self.subject.model.geometry
        carried = np.full((len(self.pairs), geometry.n_layers, geometry.n_heads), np.nan)
        for batch in self.batches():
            pairs = self.run(batch, (), ())
            for layer in pairs.every:
                carried[batch[0], layer] = pairs.carried(layer)
        return carried

    def answer(
        self,
        question: type[spec.PatchHeads | spec.PatchPositions],
        ratios: Mapping[str, tuple[np.ndarray, np.ndarray]],
        others: Mapping[str, np.ndarray],
        texts: Mapping[str, Any],
    ) -> Result:
        """Return ratios of sums over pairs, with errors over their groups, beside other values.

        ``ratios`` are by name what each pair adds above, ``[pair, ...]``, and below, ``[pair]``.

        Raises:
            BadRequest: no pair shows the behaviour.
        """
        groups, shown = self.groups(), self.shown
        clean, changed = self.metrics[:, shown]
        samples = {"clean_metric": clean, "changed_metric": changed, "difference": clean - changed}
        means = [*samples]
        for name, (above, below) in ratios.items():
            samples |= {name: above[shown], f"of {name}": below[shown]}

        def numbers(mean: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = {name: np.asarray(mean[name] / mean[f"of {name}"]) for name in ratios}
            return {name: mean[name] for name in means} | shares

        counts = self.sizes | {"bad_rows": self.params.rows - len(self.pairs)}
        errors = {"errors": question.error_counts} if len({*groups.tolist()}) > 1 else {}
        return question.estimated(
            self.subject,
            self.params,
            map(numbers, means_of(samples, groups.tolist())),
            {name: np.array(float(count)) for name, count in counts.items()} | dict(others),
            texts=texts,
            provenance=self.provenance | errors,
        )


def _heads_of_set(subject: ExperimentContext, params: spec.PatchHeadsParams) -> Result:
    """Estimate all heads' effects over a set, then compute those of the largest, or of all."""
    some = PairSet(subject, params, params.metric, params.direction)
    geometry = subject.model.geometry
    what, shape = params.what, (len(some.pairs), geometry.n_layers, geometry.n_heads)
    estimated, exact = np.full((2, *shape), np.nan)
    known = np.zeros(shape[0], dtype=bool)

    def answer() -> Result:
        of = some.sign * (some.metrics[0] - some.metrics[1])
        done = known[:, None, None]
        opposite = np.where(np.isnan(exact), np.nan, exact / of[:, None, None] <= -spec.COUNTS)
        ratios = {
            "effect": (np.where(done, exact, 0), known * of),
            "attribution": (estimated, of),
            "opposite": (np.where(done, opposite, 0), known),
        }
        both = np.stack([estimated, exact])[:, known].sum(axis=1)
        both = both[:, np.isfinite(both[1])]
        agreement = spearmanr(*both).statistic if both.shape[1] > 2 and known.any() else np.nan
        return some.answer(spec.PatchHeads, ratios, {"agreement": np.array(agreement)}, {})

    batches = some.batches()
    for step, batch in enumerate(batches):
        subject.progress(step, 2 * len(batches))
        pairs = some.run(batch, [what], geometry.with_heads)
        for layer in geometry.with_heads:
            changed = pairs.with_heads(layer, what, *([head] for head in range(shape[2])))
            estimated[batch[0], layer] = pairs.attributions(layer, changed)
        if len(some.shown):
            subject.form(step + 1, answer())
    size = np.abs(estimated[some.shown].sum(axis=0))
    cells = largest_first(size, spec.LARGEST if params.exact == "largest" else None)
    by_layer = {layer: sorted(head for at, head in cells if at == layer) for layer, _ in cells}
    begun, batches = len(batches), some.batches(some.shown)
    some.go_on(known, exact=exact)
    for step, batch in enumerate(batches, begun):
        if known[batch[0]].all():
            continue
        subject.progress(step, begun + len(batches))
        pairs = some.run(batch, [what], by_layer, graph=False)
        for layer, heads in by_layer.items():
            changed = pairs.with_heads(layer, what, *([head] for head in heads))
            exact[batch[0][:, None], layer, heads] = pairs.changes(layer, changed)
        known[batch[0]] = True
        some.save()
        subject.form(step + 1, answer())
    return answer()


def _positions_of_set(
    subject: ExperimentContext, params: spec.PatchPositionsParams, layer: int, heads: list[int]
) -> Result:
    """Put a head, or a layer, into the other runs of a set, by position or span."""
    some, what = PairSet(subject, params, params.metric, params.direction), params.what
    names = _spans(subject, some.pairs)
    parts = np.full((len(some.pairs), len(spec.PARTS)), np.nan)
    exact, estimated = np.full((2, len(some.pairs), len(names)), np.nan)

    def answer() -> Result:
        of, selected, begin = (
            some.sign * (some.metrics[0] - some.metrics[1]),
            some.shown,
            subject.start_token,
        )
        ratios = {"part_effect": parts, "span_effect": exact, "span_attribution": estimated}
        moved = some.sign * parts[selected, spec.PARTS.index(what)]
        texts = {
            "part": list(spec.PARTS),
            "span": list(names),
            "pair": ["".join(subject.decode([*some.pairs[at].clean[begin:]])) for at in selected],
        }
        others = {"pair_effect": moved, "pair_difference": some.sign * of[selected]}
        ratios_of = {name: (ratio, of) for name, ratio in ratios.items()}
        return some.answer(spec.PatchPositions, ratios_of, others, texts)

    read = np.zeros(len(some.pairs), dtype=bool)
    some.go_on(read, parts=parts, exact=exact, estimated=estimated)
    for step, batch in enumerate(batches := some.batches()):
        if read[batch[0]].all():
            continue
        subject.progress(step, len(batches))
        pairs = some.run(batch, spec.PARTS, [layer])
        spans = [[span[at][:: some.sign * -1] for at in batch[0]] for span in names.values()]
        parts[batch[0]] = pairs.changes(layer, _parts(pairs, layer, heads))
        exact[batch[0]] = pairs.changes(layer, pairs.with_spans(layer, what, heads, spans))
        estimated[batch[0]] = pairs.attributions(layer, pairs.with_spans(layer, what, heads, spans))
        read[batch[0]] = True
        some.save()
        if len(some.shown):
            subject.form(step + 1, answer())
    return answer()


def _spans(subject: ExperimentContext, pairs: Sequence[TokenPair]) -> dict[str, Spans]:
    """Return where to replace what in each pair: at every position, or at spans that all have."""
    length, spans = len(pairs[0].clean), dict[str, Spans]()
    if any(len(pair.clean) != length for pair in pairs):
        names = [name for name in pairs[0].spans if all(name in pair.spans for pair in pairs)]
        return {name: [pair.spans[name] for pair in pairs] for name in names}
    for at in range(length):
        both = (slice(at, at + 1),) * 2
        ids = {ids[at] for pair in pairs for ids in (pair.clean, pair.changed)}
        words = [repr(subject.decode([*ids])[0])] if len(ids) == 1 else []
        words += [
            name
            for name in pairs[0].spans
            if name != END and all(pair.spans.get(name) == both for pair in pairs)
        ]
        spans[" ".join([str(at), *words])] = [both] * len(pairs)
    return spans
