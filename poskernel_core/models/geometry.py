"""The attention geometry of a model: layers, heads, positions.

:mod:`poskernel_core.models.configuration` reads it from a ``config.json``.
"""

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.groups import GROUPS
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import ALL_GATHERED, DEFAULT_CONTEXT, QUERIES_PER_POSITION, Gather

ROOM = 7.5e9
"""Most bytes of a run with default settings: its sums, and the statistics that are made of them."""

SHORTEST = 64
"""Least default context, however wide the model."""

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
        while length >= 2 * SHORTEST:
            found = self.sums(length, 34, QUERIES_PER_POSITION // GROUPS)
            every = sum(found.get(name, 0) for name in ALL_GATHERED)
            # sums of all groups, and their means: in half the bytes, or of all groups together
            of_groups = every - found["residuals"]
            if 4 * GROUPS * every + (4 + 2 * GROUPS) * of_groups + 4 * found["residuals"] <= ROOM:
                break
            length //= 2
        return length

    def sums(self, tokens: int, positions: int, samples: int) -> dict[Gather, int]:
        """Return how many values the largest sums of one group of texts hold, over all layers.

        Args:
            tokens: the context.
            positions: number of recorded query positions.
            samples: queries kept at each of them, of one group.
        """
        stream, rows = tokens * self.d_model, self.n_heads * tokens
        each: dict[Gather, int] = {
            "keys": self.n_kv_heads * tokens * self.d_head,
            "queries": positions * self.n_heads * samples * self.d_head,
            "patterns": rows * positions,
            "residuals": stream,
            "normed": stream,
            "scores": rows * self.d_head,
        }
        return {name: self.n_layers * count for name, count in each.items()}

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
