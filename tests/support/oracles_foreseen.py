"""Captured attention once more, in plain loops over the readings of a model.

Written from the definition: of the groups of texts, those of even number choose keys and those of
odd number are measured, then the other way round; a group that is left out is missing from its
half. Every order of keys is a list of positions, every cache a set of positions.
"""

import math
from dataclasses import dataclass

import numpy as np

from tests.support import oracles
from tests.support.oracles_groups import mean_of

WAYS = ("kernel", "last", "first and last", "best")


@dataclass(repr=False)
class Layer:
    """What a layer reads and computes: `[text, head, pos, d]`, `[text, kv, pos, d]`, patterns.

    `groups` are all groups of texts; `sampled` texts of each give their queries.
    """

    queries: np.ndarray
    keys: np.ndarray
    attention: np.ndarray
    groups: list
    sampled: int
    window: int | None = None

    @property
    def shared(self):
        """How many query heads read each key head."""
        return self.queries.shape[1] // self.keys.shape[1]

    def visible(self, n):
        return oracles.visible(n, 0, self.window)

    def row(self, head, some, n):
        """The mean attention over some groups."""
        return mean_of(self.attention[:, head, n], some, self.groups).astype(float).tolist()

    def kernel(self, head, some, n, skip):
        """The mean kernel of some groups' queries over their mean keys."""
        keys = mean_of(self.keys[:, head // self.shared], some, self.groups).astype(float).tolist()
        texts = [text for group in some for text in group[: self.sampled]]
        queries = self.queries[texts, head, n].astype(np.float32).tolist()
        scale = len(queries[0]) ** -0.5
        return oracles.mean_kernel(queries, keys, scale, n, skip, self.window)

    def order(self, way, head, some, n, skip):
        """The visible keys as a way of choosing keeps them, first to last."""
        seen = self.visible(n)
        if way == "last":
            return sorted(seen, reverse=True)
        if way == "first and last":
            first = [i for i in seen if i < 4]
            return first + [i for i in reversed(seen) if i >= 4]
        if way == "best":
            row = self.row(head, some, n)
            return sorted(seen, key=lambda i: -row[i])
        first = [i for i in seen if i < skip]
        if len(first) == len(seen):
            return first
        row = self.kernel(head, some, n, skip)
        return first + sorted([i for i in seen if i >= skip], key=lambda i: -row[i])

    def halves(self, some):
        """Groups by the parity of their number, both ways round: those that choose come first."""
        even = [group for number, group in enumerate(self.groups) if number % 2 == 0]
        one = [group for group in some if group in even]
        other = [group for group in some if group not in even]
        return (one, other), (other, one)

    def captured(self, way, head, some, n, skip):
        """The share of the attention that 1, 2, ... keys get, mean of both ways round."""
        curves = []
        for chooses, measured in self.halves(some):
            row, curve, total = self.row(head, measured, n), [], 0.0
            for key in self.order(way, head, chooses, n, skip):
                total += row[key]
                curve.append(total)
            curves.append([each / curve[-1] for each in curve])
        return oracles.mean_row(curves)

    def cache(self, some, queries, skip, budgets):
        """For each budget, the shares of the visible keys kept, and of the attention they get."""
        n, kept, got = queries[-1], [[] for _ in budgets], [[] for _ in budgets]
        for chooses, measured in self.halves(some):
            heads = range(self.queries.shape[1])
            rows = [self.row(head, measured, n) for head in heads]
            orders = {
                (head, query): self.order("kernel", head, chooses, query, skip)
                for head in heads
                for query in queries
            }
            for place, budget in enumerate(budgets):
                for kv in range(self.keys.shape[1]):
                    own, held, since = heads[kv * self.shared :][: self.shared], set(), 0
                    for query in queries:
                        held |= set(range(since, query + 1))
                        since, picked = query + 1, set()
                        for head in own:
                            there = [key for key in orders[head, query] if key in held]
                            picked |= set(there[:budget])
                        held = picked
                    kept[place].append(len(held) / len(self.visible(n)))
                    got[place] += [sum(rows[h][key] for key in held) / sum(rows[h]) for h in own]
        return [oracles.mean(each) for each in kept], [oracles.mean(each) for each in got]


def error(numbers):
    """Error of `[x, x_0, x_1, ...]`, with the groups of each half by themselves."""
    variance = 0.0
    for half in (numbers[1::2], numbers[2::2]):
        middle = oracles.mean(half)
        variance += (len(half) - 1) / len(half) * sum((x - middle) ** 2 for x in half)
    return math.sqrt(variance)


def keys_for(curve, share=0.95):
    """How many keys capture a share, with straight lines between whole numbers of keys."""
    below = 0.0
    for count, value in enumerate(curve):
        if value >= share:
            return count + (share - below) / (value - below)
        below = value
    raise ValueError(f"the curve ends at {below}")
