"""Brute-force oracles of the bag of tokens: plain loops over heads, tokens and positions.

They share no code with `poskernel_core`; queries, keys and hidden values are those of plain
transformers.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support import oracles
from tests.support.oracles_first_layer import inside, layer_of
from tests.support.truth import truth_of

SHARES = (1 / 8, 3 / 8, 5 / 8, 7 / 8)


@dataclass(frozen=True)
class Setting:
    """Which bag: model, texts of the mean keys, how many for medians, heads, query, token.

    `window` is layer 0's, `start` 1 with a start token.
    """

    path: Path
    windows: np.ndarray
    contexts: int
    heads: tuple[int, ...]
    query: int
    token: int
    start: int = 1
    window: int | None = None

    @property
    def factor(self) -> float:
        """What scores are multiplied by."""
        config = json.loads((self.path / "config.json").read_text())
        if config["model_type"] == "gpt_neo":
            return 1.0
        return (config.get("head_dim") or config["n_embd"] // config["n_head"]) ** -0.5


class Bag:
    """The bag of a setting, one number after the other.

    Attributes:
        kernels: `[head][query]`, a row each.
        weights: `[head][token]`, content weight over median denominator.
    """

    def __init__(self, on: Setting) -> None:
        self.on, self.layer = on, layer_of(on.path)
        keys = truth_of(on.path, on.windows).keys[0]
        self.means = sum(keys) / len(keys)
        alone = np.full((1, on.windows.shape[1]), on.token)
        alone[:, : on.start] = on.windows[0, 0]
        self.queries = truth_of(on.path, alone).queries[0][0]
        self.shared = len(self.queries) // len(self.means)
        self.kernels = [self._kernels(head) for head in on.heads]
        self.denominators = [self._denominator(number) for number in range(len(on.heads))]
        self.places = self._places()
        self.weights = self._weights()
        streams = [
            [
                self.layer.embedding[t] + self.layer.positions[n * self.learned]
                for n, t in enumerate(text)
            ]
            for text in on.windows[: on.contexts].tolist()
        ]
        self.first = [[self.layer.scale(0, x) for x in text[on.start :]] for text in streams]
        seen = inside(on.path, on.windows[: on.contexts]).between
        self.second = [[self.layer.scale(1, x) for x in text[on.start :]] for text in seen]
        learned = [self.layer.positions[place * self.learned] for place in self.places]
        self.token_scales = [
            oracles.mean([self.layer.scale(0, row + position) for position in learned])
            for row in self.layer.embedding
        ]
        scale = _scale(self.second, "mean", 0)
        rows = [scale * self.layer.linear(1, one) for one in np.eye(len(self.layer.b_o))]
        self.reads = np.array(rows) @ self.layer.w_in

    @property
    def learned(self) -> int:
        return int(self.layer.positions.any())

    def _kernels(self, head: int) -> list[list[float]]:
        on, means = self.on, self.means[head // self.shared].tolist()
        rows = enumerate(self.queries[head].tolist())
        return [oracles.kernel_row(q, means, on.factor, n, 0, on.window) for n, q in rows]

    def _content(self, head: int, key: np.ndarray, place: int) -> float:
        query, mean = self.queries[head, self.on.query], self.means[head // self.shared, place]
        return self.on.factor * float(query @ (key[head // self.shared] - mean))

    def _denominator(self, number: int) -> float:
        """Median over texts of `sum_i K(n,i) w(n,i)`."""
        on, found = self.on, []
        cut = on.windows[: on.contexts, : on.query + 1].copy()
        cut[:, on.query] = on.token
        for keys in truth_of(on.path, cut).keys[0]:
            row = self.kernels[number][on.query]
            scores = [self._content(on.heads[number], keys[:, i], i) for i in range(on.query + 1)]
            found.append(math.fsum(k * math.exp(c) for k, c in zip(row, scores, strict=False)))
        return statistics.median(found)

    def _places(self) -> list[int]:
        row = oracles.mean_row([kernel[self.on.query] for kernel in self.kernels])
        whole, found = math.fsum(row[self.on.start :]), []
        for share in SHARES:
            place, mass = self.on.start, row[self.on.start]
            while mass < share * whole:
                place, mass = place + 1, mass + row[place + 1]
            found.append(place)
        return found

    def _weights(self) -> list[list[float]]:
        vocabulary, scores = range(len(self.layer.embedding)), []
        for place in self.places:
            texts = np.ones((len(vocabulary), place + 1), dtype=np.int64)
            texts[:, place] = vocabulary
            keys = truth_of(self.on.path, texts).keys[0][:, :, place]
            scores.append([[self._content(h, keys[t], place) for t in vocabulary]
                           for h in self.on.heads])  # fmt: skip
        return [
            [math.exp(oracles.mean([s[h][t] for s in scores])) / z for t in vocabulary]
            for h, z in enumerate(self.denominators)
        ]

    def scale(self, by: str, token: int, n: int) -> float:
        if by == "token":
            return self.token_scales[token]
        return _scale(self.first, by, n - self.on.start)

    def value(self, number: int, token: int, scale: float) -> np.ndarray:
        """What a token in the bag adds to the output of one head, behind its projection."""
        head, layer = self.on.heads[number], self.layer
        normed = scale * layer.linear(0, layer.embedding[token])
        return self.weights[number][token] * (normed @ layer.values[head][0]) @ layer.outputs[head]

    def embed(self, token: int, by: str = "token") -> np.ndarray:
        """The extended embedding `e(t)`."""
        heads = range(len(self.on.heads))
        return sum(self.value(number, token, self.scale(by, token, 0)) for number in heads)

    def read(self, neuron: int) -> np.ndarray:
        """What turns an extended embedding into a contribution."""
        return self.reads[:, neuron]

    def predict(
        self, text: Sequence[int], n: int, kernel: str = "own", by: str = "token"
    ) -> "Prediction":
        """The parts of the stream before the MLP at one position of a text."""
        layer, on = self.layer, self.on
        direct = layer.embedding[text[n]] + layer.positions[n * self.learned]
        written, fixed = np.zeros_like(direct), np.zeros_like(direct)
        for number in range(len(on.heads)):
            rows = [self.kernels[number]] if kernel == "own" else self.kernels
            row = oracles.mean_row([each[n] for each in rows])
            for i in range(n + 1):
                scale = self.scale(by, text[i], i)
                fixed += row[i] * self._fixed(number, i, scale)
                if i >= on.start:
                    written += row[i] * self.value(number, text[i], scale)
        others = self.layer.b_o + sum(
            (self._exact(direct) @ layer.values[head][0] + layer.values[head][1])
            @ layer.outputs[head]
            for head in range(len(layer.outputs))
            if head not in on.heads
        )
        between = direct + written + fixed + others
        second = layer.scale(1, between) if by == "token" else _scale(self.second, by, n - on.start)
        return Prediction(direct, written, fixed, others, second)

    def _exact(self, x: np.ndarray) -> np.ndarray:
        return self.layer.linear(0, x) * self.layer.scale(0, x) + self.layer.norms[0][1]

    def _fixed(self, number: int, i: int, scale: float) -> np.ndarray:
        """What a position adds whatever its token; a start token adds what it really writes."""
        layer, head = self.layer, self.on.heads[number]
        here, (weight, bias) = layer.positions[i * self.learned], layer.values[head]
        if i < self.on.start:
            stream = layer.embedding[self.on.windows[0, 0]] + here
            return (self._exact(stream) @ weight + bias) @ layer.outputs[head] / self.denominators[
                number]  # fmt: skip
        normed = scale * layer.linear(0, here) + layer.norms[0][1]
        return (normed @ weight + bias) @ layer.outputs[head]

    def activation(self, of: "Prediction", neuron: int | slice) -> np.ndarray:
        normed = of.scale * self.layer.linear(1, of.between) + self.layer.norms[1][1]
        return normed @ self.layer.w_in[:, neuron] + self.layer.b_in[neuron]

    def through(self, of: "Prediction", part: np.ndarray, neuron: int | slice) -> np.ndarray:
        """What one part adds to a pre-activation."""
        return of.scale * self.layer.linear(1, part) @ self.layer.w_in[:, neuron]


@dataclass(frozen=True, repr=False)
class Prediction:
    """Parts of the stream before the MLP at one position, and the second norm's scale."""

    direct: np.ndarray
    bag: np.ndarray
    position: np.ndarray
    others: np.ndarray
    scale: float

    @property
    def between(self) -> np.ndarray:
        return self.direct + self.bag + self.position + self.others


def _scale(scales: Sequence[Sequence[float]], by: str, place: int) -> float:
    """Mean of all texts' scales, or of those at one place (a start token's is the next)."""
    if by == "position":
        return oracles.mean([text[max(place, 0)] for text in scales])
    return oracles.mean([x for text in scales for x in text])


def agreement(true: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """R2, correlation, and agreement on the sign, of one text's numbers."""
    pairs, middle = list(zip(true, predicted, strict=True)), oracles.mean(true)
    error = math.fsum((t - p) ** 2 for t, p in pairs)
    return {
        "r2": 1 - error / math.fsum((t - middle) ** 2 for t in true),
        "correlation": float(np.corrcoef(true, predicted)[0, 1]),
        "sign_agreement": oracles.mean([float((t > 0) == (p > 0)) for t, p in pairs]),
    }


def moments(true: np.ndarray, whole: np.ndarray, bag: np.ndarray) -> dict[str, float]:
    """All numbers of a neuron over texts and positions `[text, pos]`."""
    spread, drive = true.var(), bag.var()
    pairs = list(zip(true.ravel().tolist(), whole.ravel().tolist(), strict=True))
    return {
        "drive": math.sqrt(drive),
        "drive_share": drive / spread,
        "r2": 1 - oracles.mean([(t - p) ** 2 for t, p in pairs]) / spread,
        "r2_of_bag": 1 - ((bag - (true - whole + bag)) ** 2).mean() / (true - whole + bag).var(),
        "sign_agreement": oracles.mean([float((t > 0) == (p > 0)) for t, p in pairs]),
        "fires": oracles.mean([float(t > 0) for t, _ in pairs]),
    }
