"""One layer's attention: which keys its heads see, or why it has no heads."""

from dataclasses import dataclass

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
