"""Errors over groups of texts once more: means of all but one group, and numbers of these.

Written from the definition: for a number `x` of all texts let `x_g` be the same without group `g`
and its queries. Its error is `sqrt((G-1)/G sum_g (x_g - mean x_g)^2)`, its bias `(G-1) (mean x_g -
x)`. Readings are arrays `[text, ...]` of what the model computes; a *choice* of texts is a list of
groups, each a list of texts, and every number is computed from all texts of a choice at once.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from tests.support import oracles
from tests.support.truth import Recorder

LARGEST = 32767
SHORT = 16


def groups_of(windows):
    """Ten stretches of consecutive windows, equally long, or one window each if they are fewer."""
    count = min(10, windows)
    size = windows // count
    return [list(range(g * size, (g + 1) * size)) for g in range(count)]


def choices(groups):
    """All groups, and all but each one."""
    return [groups, *[groups[:g] + groups[g + 1 :] for g in range(len(groups))]]


def error_and_bias(numbers):
    """Error and bias of `[x, x_0, x_1, ...]`."""
    whole, *without = [np.asarray(number, dtype=float) for number in numbers]
    count, middle = len(without), sum(without) / len(without)
    spread = sum((x - middle) ** 2 for x in without)
    return np.sqrt((count - 1) / count * spread), (count - 1) * (middle - whole)


def half_of_what_is_lost(gaps):
    """Half of what a distance loses by cross-fit, from rows of differences `[d, d_0, d_1, ...]`."""
    whole, *without = gaps
    count, fitted = len(without), 0.0
    for each in without:
        for all_of_them, others in zip(whole, each, strict=True):
            pseudo = count * all_of_them - (count - 1) * others
            fitted += 0.5 * math.copysign(1.0, others) * pseudo / count
    return (0.5 * sum(map(abs, whole)) - fitted) / 2


def mean_of(reading, choice, kept_of=None):
    """The mean over the texts of a choice of groups.

    `kept_of`: all groups, whose means are then rounded as they are kept: the mean of all in
    float32, and how far each group is from it in steps, 32767 of which reach the farthest group
    (of a row of 16 numbers or more, the farthest number of the row).
    """
    if kept_of is None:
        return sum(reading[text].astype(float) for group in choice for text in group) / sum(
            map(len, choice)
        )
    each = [mean_of(reading, [group]) for group in kept_of]
    mean = sum(each) / len(each)
    off = [one - mean for one in each]
    farthest = np.max([np.abs(one) for one in off], axis=0)
    if farthest.ndim and farthest.shape[-1] >= SHORT:
        farthest = np.broadcast_to(farthest.max(axis=-1, keepdims=True), farthest.shape)
    step = np.where(farthest > 0, farthest / LARGEST, 1)
    steps = [np.rint(one / step) * step for one in off]
    inside = [one for one, group in zip(steps, kept_of, strict=True) if group in choice]
    left = [one for one, group in zip(steps, kept_of, strict=True) if group not in choice]
    # the fewer are summed up, since together all are 0, to within a step
    shift = sum(inside) if len(inside) <= len(left) else -sum(left)
    return mean.astype(np.float32) + shift / len(choice)


def query_variation(kernels):
    """Mean distance between kernels `[group][place]` and those of the next two groups, round."""
    count, gaps = len(kernels), []
    for group in range(count):
        for ahead in (1, 2) if count > 2 else (1,):
            others = kernels[(group + ahead) % count]
            gaps += [
                oracles.total_variation(ours, theirs)
                for ours, theirs in zip(kernels[group], others, strict=True)
            ]
    return oracles.mean(gaps)


@dataclass(repr=False)
class Head:
    """What one head reads and computes: `[text, pos, d]`, `[text, query, key]`, and its rule.

    `groups` are all groups; `sampled` texts of each give their queries; `kept`: means are rounded
    as they are kept.
    """

    queries: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    call: object
    head: int
    groups: list
    sampled: int = 1
    kept: bool = False

    def mean(self, reading, choice):
        return mean_of(reading, choice, self.groups if self.kept else None)

    def visible(self, n, skip):
        return oracles.visible(n, skip, self.call.window)

    def kernel(self, query, keys, n, skip):
        """The kernel of one query over mean keys, [key], 0 where nothing is seen."""
        scores = {}
        for i in self.visible(n, skip):
            score = self.call.scale * float(query @ keys[i])
            if self.call.cap is not None:
                score = self.call.cap * math.tanh(score / self.call.cap)
            if self.call.slopes is not None:
                score -= self.call.slopes.per_head[self.head] * (n - i)
            scores[i] = score
        return oracles.softmax_at(scores, len(keys))

    def kernels(self, choice, n, skip):
        """The kernels of the sampled queries of each group, `[group][place]`."""
        keys = self.mean(self.keys, choice)
        return [
            [self.kernel(self.queries[text, n].astype(float), keys, n, skip)
             for text in group[: self.sampled]]
            for group in choice
        ]  # fmt: skip

    def mean_kernel(self, choice, n, skip):
        """The mean of these kernels."""
        return oracles.mean_row([row for group in self.kernels(choice, n, skip) for row in group])

    def kernel_numbers(self, choice, n, skip, positions):
        """What the heat map tells of the head at one position."""
        row = self.mean_kernel(choice, n, skip)
        others = {m: self.mean_kernel(choice, m, skip) for m in positions if m >= skip}
        observed = self.mean(self.rows, choice)[n].tolist()
        return {
            "etc": oracles.etc(row),
            "half_mass_distance": oracles.half_mass_distance(row, n),
            "local_mass": oracles.local_mass(row, n, 3),
            "query_variation": query_variation(self.kernels(choice, n, skip)),
            "equivariance_error": oracles.equivariance(n, others, skip),
            "attention_distance": oracles.fidelity(row, observed, max(skip, self.visible(n, 0)[0])),
        }

    def gap(self, choice, n, skip):
        """The kernel less the observed attention, by key."""
        row, low = self.mean_kernel(choice, n, skip), max(skip, self.visible(n, 0)[0])
        seen = self.mean(self.rows, choice)[n].tolist()[low : n + 1]
        return [k - a / sum(seen) for k, a in zip(row[low : n + 1], seen, strict=True)]

    def profile(self, choice, start):
        """`P(k)`, the mean attention k places back."""
        length = self.rows.shape[1]
        each = np.array([
            [oracles.mean([float(row[n, n - k]) for n in range(k + start, length)] or [0.0])
             for k in range(length)]
            for row in self.rows
        ])  # fmt: skip
        return self.mean(each, choice)

    def sinks(self, choice, keys=8):
        """Mean attention to the first keys, each over the queries from it on."""
        each = np.array([[row[i:, i].astype(float).mean() for i in range(keys)]
                         for row in self.rows])  # fmt: skip
        return self.mean(each, choice)

    def entropy(self, choice, n, skip):
        """Mean entropy of the rows at one position, without the first keys."""
        found = [oracles.entropy(row, skip) for row in self.rows[:, n, : n + 1]]
        return float(mean_of(np.array(found), choice))


def heads_of(model, windows, sampled):
    """Every head of a model on windows, by layer and number, read off the model as it runs."""
    recorder = Recorder(patterns=True)
    model.run(torch.from_numpy(windows), observers=[recorder], until=-1)
    found = {}
    for layer, (call, rows) in enumerate(zip(recorder.calls, recorder.patterns(), strict=True)):
        heads, shared = call.q.shape[1], call.k.shape[1]
        for head in range(heads):
            reading = call.q[:, head], call.k[:, head * shared // heads], rows[:, head]
            found[layer, head] = Head(
                *(each.float().numpy() for each in reading), call, head,
                groups_of(len(windows)), sampled,
            )  # fmt: skip
    return found
