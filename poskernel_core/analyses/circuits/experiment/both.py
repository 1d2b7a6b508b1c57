"""Run both prompts of every pair: what the answers' logits say, and what each head carries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.kernel_only.experiment import Outputs
from poskernel_core.analyses.patching.experiment import LEAST, TOKENS
from poskernel_core.analyses.patching.pairs import (
    PairsParams,
    TokenPair,
    by_length,
    groups_of_pairs,
    token_pairs,
)
from poskernel_core.common.errors import BadRequest


@dataclass(frozen=True)
class Both:
    """The pairs of a set that show the behaviour.

    Attributes:
        pairs: those whose clean prompt prefers its answer by 0.1 nats more than the changed one.
        group: the group of each, ``[pair]``.
        metric: the logit of the answer less that of the other answer, ``[clean or changed, pair]``.
        carried: a first-order estimate of what each head carries of the difference, in nats,
            ``[pair, layer, head]``.
        left_out: how many pairs do not show it.
    """

    pairs: list[TokenPair]
    group: np.ndarray
    metric: np.ndarray
    carried: np.ndarray
    left_out: int

    @property
    def sizes(self) -> dict[str, np.ndarray]:
        """How many pairs are used, and how many are not."""
        return {"pairs": np.array(len(self.pairs)), "left_out": np.array(self.left_out)}


def run_both(subject: ExperimentContext, params: PairsParams) -> Both:
    """Run the pairs of a set; see :class:`Both`.

    The estimate of a head is the change of its output times the gradient of the metric by it, the
    mean of those at the clean and at the changed prompt.

    Raises:
        BadRequest: pairs of fewer than two groups show the behaviour.
    """
    pairs, geometry = token_pairs(subject, params), subject.model.geometry
    metric = np.empty((2, len(pairs)))
    carried = np.full((len(pairs), geometry.n_layers, geometry.n_heads), np.nan)
    for places, clean, changed in batches(subject, pairs):
        edit, answers = Outputs(), answers_of(pairs, places)
        logits = subject.model.run(torch.cat([clean, changed]), edit, keep=1, graph=True)
        margins = margin(logits, answers.repeat(2, 1))
        metric[:, places] = margins.detach().view(2, -1).double().cpu().numpy()
        gradients = torch.autograd.grad(margins.sum(), [*edit.zeros.values()])
        for layer, gradient in zip(edit.zeros, gradients, strict=True):
            own, other = edit.outputs[layer].chunk(2)
            slope = sum(gradient.chunk(2)) / 2
            carried[places, layer] = (slope * (own - other)).sum(dim=(2, 3)).double().cpu().numpy()
    shows = metric[0] - metric[1] >= LEAST
    pairs = [pair for pair, good in zip(pairs, shows, strict=True) if good]
    group = groups_of_pairs(pairs) if pairs else np.empty(0, int)
    if len(np.unique(group)) < 2:
        raise BadRequest(
            f"Expected pairs of two groups or more whose clean prompt prefers its answer by "
            f"{LEAST:g} nats more than the changed one, got {len(pairs)} such pairs: add pairs, or "
            "choose other answers."
        )
    group = np.unique(group, return_inverse=True)[1]
    return Both(pairs, group, metric[:, shows], carried[shows], int((~shows).sum()))


def batches(
    subject: ExperimentContext, pairs: Sequence[TokenPair]
) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
    """Yield pairs of one length: their numbers, and the tokens of both prompts ``[pair, pos]``."""
    for places, clean, changed in by_length(pairs):
        size = rows_per_run(subject, clean.shape[1] * 2)
        for first in range(0, len(places), size):
            some = slice(first, first + size)
            one, two = (torch.from_numpy(np.ascontiguousarray(x[some])) for x in (clean, changed))
            yield np.asarray(places)[some], one, two


def rows_per_run(subject: ExperimentContext, tokens: int) -> int:
    """Return the number of texts in one run, given the tokens of each."""
    return subject.batch or max(1, TOKENS // tokens)


def answers_of(pairs: Sequence[TokenPair], places: np.ndarray) -> Tensor:
    """Return the ids of the answer and the other answer, ``[pair, 2]``."""
    ids = [(pairs[place].answer, pairs[place].other_answer) for place in places]
    return torch.tensor(ids, device="cpu")


def margin(logits: Tensor, answers: Tensor) -> Tensor:
    """Return by how much each text's last logits prefer the answer, in nats."""
    one, other = logits[:, -1].gather(1, answers.to(logits.device)).unbind(dim=1)
    return one - other
