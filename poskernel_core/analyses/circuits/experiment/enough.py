"""Keep, or remove, the first heads of a ranking."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.circuits import formulas, spec
from poskernel_core.analyses.kernel_only.experiment import Outputs, check_heads, fixed_of
from poskernel_core.analyses.kernel_only.formulas import KERNEL
from poskernel_core.analyses.patching.experiment import PairSet, texts_per_run
from poskernel_core.analyses.patching.pairs import TokenPair
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.forward.edits import Edit
from poskernel_core.models.geometry import Geometry
from poskernel_core.statistics.moments import Numbers, means_of

REPLACED, KEPT, BY_KERNEL = range(3)
"""The roles of a head in a run: its own output, another one, or its kernel for a pattern."""

Ranking = list[tuple[int, int]]
Means = Mapping[tuple[str, int], Mapping[int, Tensor]]


@dataclass(frozen=True, eq=False)
class Roles(Edit):
    """Runs in which every head has a role ``[text, layer, head]``.

    Those that are replaced put out ``outputs [text, head, pos, d]``, those that attend by their
    kernels have the rows ``kernels [head, query, key]``; both by layer.
    """

    roles: Tensor
    outputs: Mapping[int, Tensor]
    kernels: Mapping[int, Tensor]

    def pattern(self, layer: int, pattern: Tensor) -> Tensor:
        by_kernel, length = self._are(BY_KERNEL, layer, pattern), pattern.shape[-1]
        return torch.where(by_kernel, self.kernels[layer][:, :length, :length].to(pattern), pattern)

    def heads(self, layer: int, z: Tensor) -> Tensor:
        return torch.where(self._are(REPLACED, layer, z), self.outputs[layer].to(z), z)

    def _are(self, role: int, layer: int, like: Tensor) -> Tensor:
        return (self.roles[:, layer, :, None, None] == role).to(like.device)


def faithfulness(subject: ExperimentContext, params: spec.FaithfulnessParams) -> Result:
    """Keep the first heads of rankings, and remove them; see :class:`spec.Faithfulness`."""
    geometry = subject.model.geometry
    own = [parse_cell(part, geometry.n_layers, geometry.n_heads)
           for part in params.order.replace(",", " ").split()]  # fmt: skip
    check_heads(geometry, own)
    some = PairSet(subject, params)
    carried = some.carried()
    group, shown = some.groups(fewest=2), some.shown
    longest, length = some.provenance["context"], subject.windows.shape[1]
    if longest > length:
        raise BadRequest(
            f"Expected prompts of {length} tokens or fewer, the windows that kernels are of, got "
            f"{longest}: shorten them, or choose longer windows."
        )
    kernels = fixed_of(subject, subject.windows, params.skip).patterns
    rows = {layer: patterns[KERNEL] for layer, patterns in kernels.items()}
    curves = [spec.KEPT, *[spec.BY_KERNELS] * (params.outside != "kernel"), spec.REMOVED,
              *[spec.OWN_ORDER] * bool(own)]  # fmt: skip
    counts = formulas.numbers_of_heads(len(geometry.with_heads) * geometry.n_heads)
    halves = [shown[group % 2 == side] for side in (0, 1)]
    rankings = [_ranking(carried[half], geometry.with_heads) for half in halves[::-1]]
    metric = np.full((len(carried), len(curves) + spec.RANDOM_ORDERS, len(counts)), np.nan)
    read = np.zeros(len(carried), dtype=bool)
    names = [[head_name(*cell) for cell in ranking] for ranking in rankings]

    def numbers(means: Numbers) -> Numbers:
        none, every = means["metric"][0, 0], means["metric"][0, -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (means["metric"] - none) / (every - none)
        few, random = np.split(share, [len(curves)])
        recovered = np.append(few, random.mean(axis=0, keepdims=True), axis=0)
        content = recovered[0] - recovered[1] if spec.BY_KERNELS in curves else np.nan * few[0]
        return {
            "recovered": recovered,
            "content": content,
            "difference": np.asarray(every - none),
            "random_low": random.min(axis=0),
            "random_high": random.max(axis=0),
            "k80": np.array([formulas.enough(counts, row) for row in recovered]),
        }

    def answer() -> Result:
        done = read[shown]
        kept = map(numbers, means_of({"metric": metric[shown[done]]}, group[done].tolist()))
        sizes = some.sizes | {"pairs": np.array(done.sum())}
        return spec.Faithfulness.estimated(
            subject, params, kept, sizes, coordinates={"first": counts},
            texts={"curve": [*curves, spec.RANDOM_ORDER], "ranking": names},
            provenance={"errors": spec.Faithfulness.error_counts},
        )  # fmt: skip

    some.go_on(read, metric=metric)
    means = _means(some) if params.outside == "mean" else None
    for side, ranking in enumerate(rankings):
        roles = _roles(curves, ranking, own, counts, geometry)
        if params.outside == "kernel":
            roles[roles == REPLACED] = BY_KERNEL
        # equal settings, such as all heads kept, run once
        flat = roles.reshape(-1, geometry.n_layers * geometry.n_heads)
        settings, place = np.unique(flat, axis=0, return_inverse=True)
        settings = settings.reshape(-1, *roles.shape[2:])
        for pairs, metrics in _metrics(some, halves[side], settings, rows, means, side, read):
            new = ~read[pairs]
            metric[pairs[new]] = metrics[new][:, place.reshape(roles.shape[:2])]
            read[pairs] = True
            some.form(answer)
    return answer()


def _ranking(carried: np.ndarray, layers: Sequence[int]) -> Ranking:
    """Return all heads, those first that carry most, up or down, of ``[pair, layer, head]``."""
    size = np.abs(carried.sum(axis=0))
    cells = [(layer, head) for layer in layers for head in range(size.shape[1])]
    return sorted(cells, key=lambda cell: -size[cell])


def _roles(
    curves: Sequence[str], ranking: Ranking, own: Ranking, counts: np.ndarray, geometry: Geometry
) -> np.ndarray:
    """Return the roles of heads, ``[curve, first, layer, head]``; random orders come last."""
    random, mine = np.random.default_rng(0), [*dict.fromkeys([*own, *ranking])]
    orders = [mine if curve == spec.OWN_ORDER else ranking for curve in curves]
    for _ in range(spec.RANDOM_ORDERS):
        orders.append([*map(tuple, random.permutation(sorted(ranking)).tolist())])
    roles = np.full((len(orders), len(counts), geometry.n_layers, geometry.n_heads), REPLACED)
    role = {spec.BY_KERNELS: BY_KERNEL, spec.REMOVED: REPLACED}
    for curve, order in enumerate(orders):
        name = curves[curve] if curve < len(curves) else spec.RANDOM_ORDER
        if name == spec.REMOVED:
            roles[curve] = KEPT
        for place, count in enumerate(counts):
            for cell in order[:count]:
                roles[curve, place][cell] = role.get(name, KEPT)
    return roles


def _outputs(subject: ExperimentContext, tokens: Tensor) -> dict[int, Tensor]:
    """Return the heads' outputs on prompts, ``[pair, head, pos, d]`` by layer."""
    edit = Outputs()
    subject.model.run(tokens, edit, until=-1)
    return edit.outputs


def _means(some: PairSet) -> Means:
    """Return the mean outputs ``[head, pos, d]`` by layer over the changed prompts of each kind."""
    sums: dict[tuple[str, int], dict[int, Tensor]] = defaultdict(dict)
    count = Counter(_kind(some.pairs[place]) for place in some.shown)
    for places, (_, changed) in some.batches(some.shown):
        for layer, z in _outputs(some.subject, torch.from_numpy(changed)).items():
            for place, own in zip(places, z, strict=True):
                kind = _kind(some.pairs[place])
                sums[kind][layer] = sums[kind].get(layer, 0) + own / count[kind]
    return sums


def _kind(pair: TokenPair) -> tuple[str, int]:
    """Return the template and the length of a pair."""
    return pair.template, len(pair.clean)


def _metrics(
    some: PairSet,
    chosen: np.ndarray,
    settings: np.ndarray,
    kernels: Mapping[int, Tensor],
    means: Means | None,
    side: int,
    read: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield numbers of chosen pairs, and the metric of their clean prompts ``[pair, setting]``.

    ``settings`` are the roles of heads, ``[setting, layer, head]``; ``means`` take the place of the
    outputs on the pair's own changed prompt. Those that were ``read`` are not run again, as far as
    batches stay the same; their metric is any number.
    """
    subject, done, every = some.subject, 0, len(chosen) * len(settings)
    roles = torch.from_numpy(settings)
    for places, prompts in some.batches(chosen):
        clean, changed = map(torch.from_numpy, prompts)
        outputs, metric = _outputs(subject, changed), some.metric_of(places)
        if means is not None:
            kinds = [_kind(some.pairs[place]) for place in places]
            outputs = {at: torch.stack([means[kind][at] for kind in kinds]) for at in outputs}
        runs = np.indices((len(places), len(settings))).reshape(2, -1)
        size, whole = texts_per_run(subject, clean.shape[1]), 0
        metrics = np.empty((len(places), len(settings)))
        for first in range(0, runs.shape[1], size):
            pair, setting = runs[:, first : first + size]
            if not read[places[pair]].all():
                subject.progress(side * every + done + first, 2 * every)
                edit = Roles(roles[setting], {at: z[pair] for at, z in outputs.items()}, kernels)
                logits = subject.model.run(clean[pair], edit, keep=1)
                of = metric(logits, torch.from_numpy(pair))
                metrics[pair, setting] = of.double().cpu().numpy()
            before, whole = whole, (first + len(pair)) // len(settings)
            if whole > before:
                yield places[before:whole], metrics[before:whole]
        done += runs.shape[1]
