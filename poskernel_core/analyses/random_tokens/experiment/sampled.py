"""Run random sequences: batches, ablations, equalised norms, and means of what is seen."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.random_tokens.params import NormAblations
from poskernel_core.common.errors import BadRequest
from poskernel_core.data.layouts import Layout, random_layout, sequences
from poskernel_core.data.moves import parse_cells
from poskernel_core.forward.attention import AttentionCall, PatternBlock, hidden_keys
from poskernel_core.forward.edits import Chain, Edit
from poskernel_core.forward.interventions import (
    AblatedHeads,
    RemovedEmbeddings,
    ScaledHeads,
    UniformHeads,
)
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Groups, Moments

MeansAndErrors = dict[str, tuple[np.ndarray, np.ndarray]]
"""Means and standard errors by name."""

MAX_BATCH = 128
PATTERN_CELLS = 2**22
LOGITS = 2**25
MEASURED = 500
FLATTENING = 1_000_000
"""Random stream of the sequences on which norms are measured before they are equalised."""


def steps(subject: ExperimentContext, total: int) -> Callable[[int], None]:
    """Return a callback that takes the number of sequences just done, and reports progress."""
    done = 0

    def count(sequences: int) -> None:
        nonlocal done
        done += sequences
        subject.progress(done, total)

    count(0)
    return count


def batches(
    subject: ExperimentContext,
    layout: Layout,
    samples: int,
    stream: int,
    logits: int = 0,
    count: Callable[[int], None] = lambda sequences: None,
) -> Iterator[tuple[range, Tensor]]:
    """Yield batches of sequences: their numbers, and token ids ``[text, pos]``.

    ``logits`` is the number of positions to unembed, which limits the batch size. ``count`` takes
    the number of sequences after each batch.
    """
    assert subject.source is not None
    size = subject.batch or _fitting(subject, len(layout.places), logits)
    for first in range(0, samples, size):
        some = range(first, min(first + size, samples))
        yield some, torch.from_numpy(sequences(layout, subject.source, stream, some))
        count(len(some))


def _fitting(subject: ExperimentContext, length: int, logits: int) -> int:
    geometry = subject.model.geometry
    cells = PATTERN_CELLS // (geometry.n_heads * length**2)
    words = LOGITS // max(1, logits * geometry.n_vocab)
    return max(1, min(MAX_BATCH, cells, words))


def check_size(subject: ExperimentContext, length: int, most: int, rows: int | None = None) -> None:
    """Check that all heads' patterns fit into memory; they have ``rows`` rows, or are square.

    Raises:
        BadRequest: the sequences are too long for the number of heads.
    """
    heads = subject.model.geometry.n_layers * subject.model.geometry.n_heads
    longest = int((most / heads) ** 0.5)
    if heads * length * (rows or length) > most:
        raise BadRequest(
            f"Patterns of {heads} heads over {length} tokens are too many numbers to keep: ask for "
            f"{longest} tokens or fewer."
        )


def measured(params: NormAblations) -> int:
    """Return on how many sequences norms are measured before they are equalised."""
    return MEASURED if params.equalise_norms else 0


def ablations(
    subject: ExperimentContext, params: NormAblations, length: int, count: Callable[[int], None]
) -> tuple[Edit, np.ndarray | None]:
    """Return the edit that the parameters describe, and the norms that it equalises.

    Norms are root mean squares, ``[head, pos]``; None: not equalised.
    """
    geometry = subject.model.geometry
    edits: list[Edit] = []
    if params.no_positions:
        edits.append(RemovedEmbeddings("positions"))
    if params.ablate.strip():
        sizes = geometry.n_layers, geometry.n_heads
        cells = parse_cells(params.ablate, *sizes)
        zero = params.ablation == "zero"
        edits.append(AblatedHeads(cells) if zero else UniformHeads(cells))
    if not params.equalise_norms:
        return Chain(edits), None
    layout = random_layout(length, subject.start_token)
    norms = Norms()
    for some, tokens in batches(subject, layout, measured(params), FLATTENING, count=count):
        subject.model.run(tokens, Chain(edits), [norms], samples=some, keep=0)
    mean_norms, _ = norms_of(norms.squares)
    return Chain([*edits, flat(mean_norms, int(subject.start_token))]), mean_norms


def flat(norms: np.ndarray, first: int) -> Edit:
    """Return the edit that equalises the norms of layer 0's heads from position ``first`` on.

    ``norms [head, pos]`` are the current norms. Outputs of norm zero are not scaled.
    """
    target = norms[:, first:].mean(axis=1, keepdims=True)
    factor = np.ones_like(norms)
    np.divide(target, norms[:, first:], out=factor[:, first:], where=norms[:, first:] > 0)
    return ScaledHeads(0, torch.from_numpy(factor))


def norms_of(squares: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return the root of mean squares and its standard error, by the delta method."""
    norm = np.sqrt(squares.mean)
    error = np.zeros_like(norm)
    np.divide(squares.error, 2 * norm, out=error, where=norm > 0)
    return norm, error


def visible_keys(call: AttentionCall) -> np.ndarray:
    """Return how many keys each query of a call sees, ``[query]``."""
    hidden = hidden_keys(call.q.shape[2], call.window, torch.device("cpu"), call.chunk)
    return np.asarray((~hidden).sum(dim=-1).numpy())


class Norms(Observer):
    """The squared norms ``[head, pos]`` of layer 0's head outputs.

    Attributes:
        squares, groups: means of the squared norms, and their sums by group.
        visible: for every layer how many keys each query sees, ``[query]``.
    """

    def __init__(self) -> None:
        self.squares, self.groups = Moments(), Groups()
        self.visible: dict[int, np.ndarray] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer not in self.visible:
            self.visible[call.layer] = visible_keys(call)

    def heads(self, layer: int, z: Tensor, batch: Batch) -> None:
        if layer == 0:
            squares = z.cpu().double().square().sum(dim=-1)
            self.squares.add(squares)
            self.groups.add(squares, batch.samples)


class PatternMeans(Observer):
    """Means over samples of what ``take`` names and takes from each layer's pattern."""

    wants_patterns = True

    def __init__(self, layers: int, take: Callable[[PatternBlock], dict[str, Tensor]]) -> None:
        self.layers = defaultdict[str, list[Moments]](lambda: [Moments() for _ in range(layers)])
        self._take = take

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        for name, part in self._take(block).items():
            self.layers[name][block.layer].add(part)

    def numbers(self) -> MeansAndErrors:
        """Return the accumulated means and errors, ``[layer, ...]``."""
        return {name: means(layers) for name, layers in self.layers.items()}


class RowMeans(PatternMeans):
    """Means over the samples of one layout: probabilities, and the last row of every head."""

    def __init__(self, layout: Layout, layers: int) -> None:
        super().__init__(layers, self._last)
        self.layout = layout
        self.probability, self.other, self.advantage = Moments(), Moments(), Moments()

    def run(self, subject: ExperimentContext, edit: Edit, tokens: Tensor, samples: range) -> None:
        """Run and add a batch; ``samples`` are the numbers of its sequences."""
        logits = subject.model.run(tokens, edit, [self], samples=samples, keep=1)[:, -1].cpu()
        chances = torch.softmax(logits.double(), dim=-1)
        probabilities = chances.gather(1, tokens[:, list(self.layout.candidates)])
        self.probability.add(probabilities)
        self.advantage.add(probabilities[:, -1] - probabilities[:, 0])
        self.other.add(chances.gather(1, tokens[:, self.layout.others()]).mean(dim=1))

    def _last(self, block: PatternBlock) -> dict[str, Tensor]:
        last = block.pattern[:, :, -1].cpu().double()
        attention = last[..., list(self.layout.candidates)]
        return {
            "last_row": last,
            "candidate_attention": attention,
            "attention_advantage": attention[..., -1] - attention[..., 0],
        }


def means(rows: list[Moments]) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard errors, stacked."""
    return np.stack([row.mean for row in rows]), np.stack([row.error for row in rows])


def layers_of(rows: list[RowMeans], name: str, length: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return means and errors of every row and layer; shorter rows are padded with NaN in front."""
    pairs = [row.numbers()[name] for row in rows]
    mean, error = (np.stack([_padded(pair[i], length) for pair in pairs]) for i in (0, 1))
    return mean, error


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    lack = max(0, length - array.shape[-1])
    return np.pad(array, [*[(0, 0)] * (array.ndim - 1), (lack, 0)], constant_values=np.nan)
