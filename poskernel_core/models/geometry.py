"""The attention geometry of a model: layers, heads, positions.

:mod:`poskernel_core.models.configuration` reads it from a ``config.json``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.groups import GROUPS
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import (
    ALL_GATHERED,
    BAND,
    DEFAULT_CONTEXT,
    MAX_SKIP,
    QUERIES_PER_POSITION,
    STEPS,
    THINNED,
    Gather,
    default_positions,
)

ROOM = 7.8e9
"""Most bytes in the store while a run with default settings is gathered."""

KEPT = 3e9
"""Most bytes of the statistics of such a run, which stay in the store."""

SHORTEST = 64
"""Least default context, however wide the model."""

SUMS: dict[Gather, dict[str, str]] = {
    "keys": {"key_sum": "kv pos d"},
    "queries": {"queries": "query head sample d"},
    "patterns": {"row_sum": "head query pos", "profile_sum": "head pos"},
    "residuals": {"residual_sum": "pos model", "centred_square_sum": ""},
    "normed": {"normed_sum": "pos model"},
    "scores": {"score_sum": "head band", "query_sum": "head pos d"},
    "entropy": {"entropy_sum": "head query skip"},
    "repeats": {"repeat_sum": "head same", "repeat_count": "same"},
    "headvis": {"headvis_sum": "head quantity", "headvis_count": ""},
    "rotary": {"rotation_sum": "pair fact", "query_pair_sum": "skip head pair part",
               "key_pair_sum": "skip kv pair part"},
}  # fmt: skip
"""The axes of one layer's sums: what a pass allocates, and what is said of its size before torch is
imported. Statistics that allocate a few numbers themselves are not among them."""

FULL, SLIDING, CHUNKED, NONE = "full", "sliding", "chunked", "none"


@dataclass(frozen=True)
class Layer:
    """One layer's attention, as transformers builds it.

    Attributes:
        kind: ``full``, ``sliding``, ``chunked``, or ``none`` for a layer without heads.
        d_head: width of the queries and keys; 0 without heads.
        n_kv_heads: number of key heads; 0 without heads.
        window: number of visible keys, or the length of a chunk; None for all keys.
        positions: whether position affects queries, keys or scores (apart from the mask).
        base: base of the rotation; None without rotation, or if unknown.
        reason: why the layer has no heads; None if it has heads.
        keys_of: the earlier layer whose keys and values it uses; None if it makes its own.
    """

    kind: str
    d_head: int
    n_kv_heads: int
    window: int | None = None
    positions: bool = True
    base: float | None = None
    reason: str | None = None
    keys_of: int | None = None


# Limits: about twice the sizes of the largest public models.
MAX_LAYERS = 256
LIMITS = {
    "n_layers": MAX_LAYERS,
    "n_heads": 256,
    "n_kv_heads": 256,
    "d_model": 65_536,
    "d_head": 1024,
    "n_ctx": 20_000_000,
    "n_vocab": 2_000_000,
}


@dataclass(frozen=True)
class Geometry:
    """Sizes of a model's attention, in the notation of the axis legend.

    Attributes:
        n_layers, n_heads: ``L`` and ``H``.
        n_kv_heads: key heads per layer; fewer than ``n_heads`` for grouped queries.
        d_model, d_head: residual and head width.
        n_ctx: longest context, in tokens.
        n_vocab: number of tokens.
        architecture: ``model_type`` of the configuration.
        scheme: ``learned``, ``rotary``, ``ALiBi``, or ``no`` (the causal mask only).
        layers: each layer's own sizes. If they differ, ``d_head`` is the largest width and
            ``n_kv_heads`` a common multiple of the layers' key heads; queries and keys of smaller
            layers are padded with zeros, and their key heads repeated.
        numbers: count of the whole model's parameters.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    n_ctx: int
    n_vocab: int
    architecture: str
    scheme: str
    layers: tuple[Layer, ...] = ()
    numbers: int = 0

    @property
    def with_heads(self) -> tuple[int, ...]:
        """The layers that have heads; all layers if ``layers`` is empty."""
        if not self.layers:
            return tuple(range(self.n_layers))
        return tuple(i for i, layer in enumerate(self.layers) if layer.reason is None)

    @property
    def cells(self) -> list[str]:
        """The names of all heads, layer after layer."""
        return [head_name(layer, head) for layer in self.with_heads for head in range(self.n_heads)]

    @property
    def reasons(self) -> dict[int, str]:
        """Why each layer without heads has none."""
        return {i: layer.reason for i, layer in enumerate(self.layers) if layer.reason is not None}

    def reason(self, layer: int) -> str | None:
        """Return why a layer has no heads, or None if it has heads."""
        return self.layers[layer].reason if self.layers else None

    @property
    def usual_context(self) -> int:
        """The default context in tokens, shorter for wide models, so that a run has room."""
        length = min(self.n_ctx, DEFAULT_CONTEXT)
        while length >= 2 * SHORTEST and not self._has_room(length, _steps(length)[-1]):
            length //= 2
        return length

    def usual_step(self, context: int) -> int:
        """Return of how many usual query positions a run records one by default.

        It is the least for which a run has room. In contexts of more than 256 tokens it is 1.
        """
        steps = _steps(context)
        return next((step for step in steps if self._has_room(context, step)), steps[-1])

    def _has_room(self, context: int, step: int) -> bool:
        positions = len(default_positions(context, step=step))
        every = self.sums(context, positions, QUERIES_PER_POSITION // GROUPS)
        sizes = {name: every[name] for name in ALL_GATHERED}
        most = bytes_gathered(sizes, GROUPS) + bytes_saved(sizes)
        return most <= ROOM and bytes_kept(sizes, GROUPS) <= KEPT

    def axes(self, tokens: int, positions: int, samples: int) -> dict[str, int]:
        """Return the lengths of the axes of sums over one group of texts.

        Args:
            tokens: the context.
            positions: number of recorded query positions.
            samples: queries kept at each of them, of one group.
        """
        return {
            "head": self.n_heads, "kv": self.n_kv_heads, "d": self.d_head, "model": self.d_model,
            "pos": tokens, "query": positions, "sample": samples, "pair": self.d_head // 2,
            "part": 4, "fact": 3, "band": 2 * BAND + 1, "skip": MAX_SKIP + 1, "same": 2,
            "quantity": 6,
        }  # fmt: skip

    def sums(self, tokens: int, positions: int, samples: int) -> dict[Gather, int]:
        """Return how many values the sums of one group of texts hold, over all layers.

        The arguments are those of :meth:`axes`.
        """
        sizes = self.axes(tokens, positions, samples)
        return {
            name: self.n_layers
            * sum(math.prod(map(sizes.__getitem__, shape.split())) for shape in shapes.values())
            for name, shapes in SUMS.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return the fields, for :meth:`read`."""
        return asdict(self)

    @classmethod
    def read(cls, fields: Any) -> "Geometry":
        """Return the geometry with these fields.

        Raises:
            ValueError: a field is missing, unknown or of another type.
        """
        return _FIELDS.validate_python(fields)

    def checked(self, name: str) -> "Geometry":
        """Return the geometry of the model ``name`` if its sizes are within the limits."""
        for field, most in LIMITS.items():
            size = getattr(self, field)
            if type(size) is not int or not 1 <= size <= most:  # type(): True is an int too
                raise UnsupportedModel(
                    f"Expected {field!r} in the config.json of {name!r} to be a whole number from "
                    f"1 to {most:,}, got {str(size)[:40]!r}."
                )
        return self


_FIELDS = TypeAdapter(Geometry)


def _steps(context: int) -> tuple[int, ...]:
    return STEPS if context <= THINNED else STEPS[:1]


def bytes_kept(numbers: Mapping[Gather, int], groups: int) -> int:
    """Return the size of statistics in the store, without headers.

    A mean takes 32 bits, plus 16 bits per group of texts if there are several groups (in rows of
    fewer than 16 numbers, another 32). Queries take 32 bits in every group; means of the residual
    stream have no groups.

    Args:
        numbers: for each statistic, how many elements the sums of one group have.
        groups: number of groups of texts.
    """
    bytes_of = {"queries": 4 * groups, "residuals": 4, "normed": 4}
    mean = 4 + 2 * groups * (groups > 1)
    return sum(bytes_of.get(name, mean) * count for name, count in numbers.items())


def bytes_saved(numbers: Mapping[Gather, int]) -> int:
    """Return the size of a checkpoint of one group: queries take 32 bits, all other sums 64."""
    return sum((4 if name == "queries" else 8) * count for name, count in numbers.items())


def as_merged(names: Iterable[Gather]) -> list[Gather]:
    """Return statistics in the order in which their means replace sums: what shrinks most first."""
    return sorted(names, key=lambda name: (bytes_kept({name: 1}, GROUPS), name))


def bytes_gathered(numbers: Mapping[Gather, int], groups: int) -> int:
    """Return the most that the store holds while statistics are gathered, without headers.

    Beside it there is a checkpoint while texts are read. First, it holds the sums of all groups in
    32 bits. Then each statistic takes the place of its sums, one after another.
    """
    held = most = 4 * groups * sum(numbers.values())
    for name in as_merged(numbers):
        means = bytes_kept({name: numbers[name]}, groups)
        most = max(most, held + means)
        held += means - 4 * groups * numbers[name]
    return most
