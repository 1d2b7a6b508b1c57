"""From text to training windows: the demo models' own tokenizer, and four kinds of windows."""

import math
from collections.abc import Iterable

import numpy as np
from demo_recipes import START, START_TOKEN, Recipe
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SHORTEST_PERIOD = 8
FEWEST_TOKENS = 512


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level byte-pair encoding; the start token is number 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[START_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """All texts as one stream of token ids, [tokens], a blank line between texts."""
    encodings = tokenizer.encode_batch_fast([text + "\n\n" for text in texts])
    return np.concatenate([np.asarray(e.ids, dtype=np.int32) for e in encodings])


class Windows:
    """Draws batches of windows; each begins with the start token."""

    def __init__(self, stream: np.ndarray, recipe: Recipe, seed: int) -> None:
        """`stream` is the text as token ids, [tokens]."""
        self._stream = stream
        self._vocabulary = recipe.vocabulary
        self._random, self._repeated = recipe.random_share, recipe.repeated_share
        self._rng = np.random.default_rng(seed)

    def batch(self, count: int, length: int) -> np.ndarray:
        """Token ids of `count` windows, [count, length]."""
        windows = np.full((count, length), START, dtype=np.int64)
        for window in windows:
            window[1:] = self._body(length - 1)
        return windows

    def offsets(self, count: int, room: int) -> np.ndarray:
        """First positions of `count` windows, [count]: a quarter at 0, the rest up to `room`."""
        drawn = self._rng.integers(0, room + 1, size=count)
        return np.where(self._rng.random(count) < 0.25, 0, drawn)

    def _body(self, length: int) -> np.ndarray:
        kind = self._rng.random()
        if kind < self._random:
            return np.resize(self._random_tokens(self._period(length)), length)
        if kind < self._random + self._repeated:
            return np.resize(self._text(self._period(length)), length)
        return self._text(length)

    def _period(self, length: int) -> int:
        """Log-uniform, from `SHORTEST_PERIOD` tokens to half the window."""
        return self._log_uniform(SHORTEST_PERIOD, length // 2)

    def _random_tokens(self, count: int) -> np.ndarray:
        """Tokens drawn evenly below a random bound.

        The encoding numbers its tokens from frequent to rare, so that a low bound makes frequent
        tokens, on which copying is learned sooner.
        """
        bound = self._log_uniform(FEWEST_TOKENS, self._vocabulary)
        return self._rng.integers(START + 1, bound, size=count)

    def _text(self, length: int) -> np.ndarray:
        first = self._rng.integers(0, len(self._stream) - length)
        return self._stream[first : first + length]

    def _log_uniform(self, low: int, high: int) -> int:
        return round(math.exp(self._rng.uniform(math.log(low), math.log(high))))
