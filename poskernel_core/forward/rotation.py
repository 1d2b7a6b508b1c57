"""Read a layer's rotary rotation of queries and keys while the layer runs.

Cosines and sines are those that the model passes to the layer. So every scaled rotation (linear,
dynamic, YaRN, llama3, a separate base per layer) is read correctly. Which dimensions form a pair is
found by trial: the layer is run on the same vector at several positions. The right pairing is the
one with which undoing the rotation gives the same query (and the same key) at every position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.attention import AttentionCall

PROBED = 7
"""Number of positions at which the test vector is placed."""
EQUAL = {torch.float32: 1e-3, torch.bfloat16: 6e-2}
"""Largest difference of vectors that count as equal, relative to their largest number."""
LINEAR = 0.5
"""Largest deviation from a constant rotation speed, in radians; rounding errors are far smaller."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """The rotation of one layer. If it has no pairs, neither queries nor keys are rotated.

    Attributes:
        first, second: the two dimensions of every pair, ``[pair]``.
        cos, sin: rotation (and scaling) of a pair at every position, ``[batch, pos, pair]``; the
            batch axis has length 1 or one entry per text.
    """

    first: Tensor
    second: Tensor
    cos: Tensor
    sin: Tensor

    def to(self, device: torch.device) -> Rotation:
        """Return the rotation on a device."""
        own = (self.first, self.second, self.cos, self.sin)
        return Rotation(*(tensor.to(device) for tensor in own))

    def turned_back(
        self, x: Float[Tensor, "text head pos d"]
    ) -> tuple[Float[Tensor, "text head pos pair"], Float[Tensor, "text head pos pair"]]:
        """Undo the rotation of queries or keys; return the two numbers of every pair."""
        cos, sin = self.cos[:, None].float(), self.sin[:, None].float()
        size = cos.square() + sin.square()
        one, two = x[..., self.first].float(), x[..., self.second].float()
        return (one * cos + two * sin) / size, (two * cos - one * sin) / size

    def turned(self, one: Tensor, two: Tensor, x: Tensor) -> Tensor:
        """Return ``x`` with its pairs replaced by ``one`` and ``two``, which are not rotated."""
        x = x.clone()
        x[..., self.first], x[..., self.second] = one.to(x), two.to(x)
        return x

    def applied(
        self, x: Float[Tensor, "text head pos d"], rows: slice = slice(None)
    ) -> Float[Tensor, "text head pos d"]:
        """Rotate queries or keys at the positions ``rows``."""
        cos, sin = self.cos[:, None, rows].to(x), self.sin[:, None, rows].to(x)
        one, two = x[..., self.first], x[..., self.second]
        return self.turned(one * cos - two * sin, two * cos + one * sin, x)

    def speeds(self) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """Return the speed (radians per token) and the scaling factor of every pair."""
        return speeds(self.cos, self.sin)


def speeds(
    cos: Float[Tensor, "batch pos pair"], sin: Float[Tensor, "batch pos pair"]
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Return the speed (radians per token) and the scaling factor of every pair.

    A first estimate from two neighbouring positions is refined over 2, 4, 8, ... tokens.
    """
    turn = cos[0].cpu().double().numpy() + 1j * sin[0].cpu().double().numpy()
    speed, reach = np.zeros(turn.shape[1]), 1
    while reach < len(turn):
        off = np.angle(turn[reach] * np.conj(turn[0]) * np.exp(-1j * speed * reach))
        if reach > 1 and (np.abs(off) > LINEAR).any():
            raise UnsupportedModel(
                "The model turns its queries and keys by angles that do not grow steadily with "
                "position, so they have no wavelengths: choose another model."
            )
        speed, reach = speed + off / reach, 2 * reach
    return speed, np.abs(turn).mean(axis=0)


def turns(
    like: Float[Tensor, "batch pos pair"],
    speed: Float[np.ndarray, " pair"],
    size: Float[np.ndarray, " pair"],
) -> tuple[Float[Tensor, "batch pos pair"], Float[Tensor, "batch pos pair"]]:
    """Return cosines and sines of these speeds at positions 0, 1, ..., in the shape of ``like``."""
    angle = np.arange(like.shape[1])[:, None] * speed
    cos, sin = (torch.from_numpy(size * part(angle)).to(like) for part in (np.cos, np.sin))
    return cos.expand_as(like), sin.expand_as(like)


def continued(
    cos: Tensor, sin: Tensor, cos_before: Tensor, sin_before: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a rotation at all positions, with the angles of the first ones in a shorter text.

    If the length of a text does not change the angles, ``cos`` and ``sin`` are returned.
    """
    count = cos_before.shape[1]
    if torch.equal(cos[:, :count], cos_before) and torch.equal(sin[:, :count], sin_before):
        return cos, sin
    return turns(cos, *speeds(cos_before, sin_before))


class _Seen(Exception):
    """Ends a probe and carries the attention call."""

    def __init__(self, call: AttentionCall) -> None:
        super().__init__()
        self.call = call


class _Probe:
    """Replaces a layer's hooks during a probe; raises :class:`_Seen` with the attention call."""

    def __init__(self) -> None:
        self.attentions: dict[int, nn.Module] = {}

    def attend(self, call: AttentionCall) -> Tensor:
        raise _Seen(call)

    def rotated(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return cos, sin


def cosines_and_sines(module: nn.Module, handed: Any) -> tuple[Tensor, Tensor]:
    """Return cosines and sines as a rotary module hands them, or from these in its order.

    They come as complex numbers or as two tensors; GPT-J's sines come first.
    """
    if isinstance(handed, Tensor):
        return handed.real, handed.imag
    return handed[::-1] if type(module).__name__.startswith("GPTJ") else handed


def read_rotation(
    module: nn.Module, layer: int, x: Tensor, given: dict[str, Any]
) -> Rotation | None:
    """Return the rotation of an attention module that is about to read ``x [text, pos, model]``.

    ``given`` are the module's other arguments. Return None if they have no cosines and sines.
    """
    handed = given.get("position_embeddings")
    if handed is None or given.get("alibi") is not None:
        return None
    cos, sin = cosines_and_sines(module, handed)
    last, count = x.shape[1] - 1, min(PROBED, x.shape[1])
    rows = torch.linspace(0, last, count, device="cpu").round().long().to(x.device)
    call = _shown(module, layer, x, rows, given)
    for rotation in _layouts(cos, sin, call.q.shape[-1]):
        few = Rotation(rotation.first, rotation.second, rotation.cos[:1, rows],
                       rotation.sin[:1, rows])  # fmt: skip
        if all(
            _equal(few.turned(*few.turned_back(vectors), vectors)) for vectors in (call.q, call.k)
        ):
            return rotation
    raise UnsupportedModel(
        f"{type(module).__name__} turns the queries and keys of layer {layer} in a way that "
        "PosKernel does not know: choose another model."
    )


def _shown(
    module: nn.Module, layer: int, x: Tensor, rows: Tensor, given: dict[str, Any]
) -> AttentionCall:
    """Return the attention call for the same random vector at all positions ``rows``."""
    generator = torch.Generator("cpu").manual_seed(0)
    vector = (
        torch.randn(x.shape[-1], generator=generator, device="cpu").to(x).expand(1, len(rows), -1)
    )
    handed = given["position_embeddings"]
    one = isinstance(handed, Tensor)  # complex numbers, as in Llama 4
    turns = handed[:1, rows] if one else tuple(part[:1, rows] for part in handed)
    return attention_call(module, layer, vector, (), given | {"position_embeddings": turns})


def unrotated_call(
    module: Any,
    layer: int,
    vectors: Float[Tensor, "1 row model"],
    rest: tuple[Any, ...],
    given: dict[str, Any],
) -> AttentionCall:
    """Return the attention call of a module that reads vectors and rotates nothing.

    ``rest`` and ``given`` are the module's other arguments in a pass over one text or several.
    """
    handed, rows, probed = given.get("position_embeddings"), vectors.shape[1], dict(given)
    if isinstance(handed, Tensor):
        probed["position_embeddings"] = torch.ones_like(handed[:1, :1]).expand(1, rows, -1)
    elif handed is not None:
        cos, sin = (part[:1, :1].expand(1, rows, -1) for part in handed)
        handed = torch.ones_like(cos), torch.zeros_like(sin)
        probed["position_embeddings"] = cosines_and_sines(module, handed)
    if given.get("alibi") is not None:
        alibi = given["alibi"]
        probed["alibi"] = alibi.reshape(-1, *alibi.shape[-2:])[: module.num_heads]  # of one text
    if isinstance(given.get("position_ids"), Tensor):
        probed["position_ids"] = torch.zeros(1, rows, dtype=torch.long, device=vectors.device)
    return attention_call(module, layer, vectors, rest, probed)


def attention_call(
    module: nn.Module, layer: int, x: Tensor, rest: tuple[Any, ...], given: dict[str, Any]
) -> AttentionCall:
    """Return the attention call of a module that reads ``x``; the attention is not computed.

    ``rest`` and ``given`` are the module's other arguments in a pass.
    """
    probed = given | {"attention_mask": None}
    probed.pop("hidden_states", None)
    kept = vars(module)["poskernel"]
    vars(module)["poskernel"] = (_Probe(), layer)
    try:
        module.forward(x, *rest, **probed)
    except _Seen as seen:
        return seen.call
    finally:
        vars(module)["poskernel"] = kept
    raise UnsupportedModel(
        f"{type(module).__name__} computes its own attention, so its rotation cannot be read: "
        "choose another model."
    )


def _layouts(cos: Tensor, sin: Tensor, width: int) -> Iterator[Rotation]:
    """Yield the known layouts, each with one cosine per pair.

    Models pass one cosine per dimension or per pair. The dimensions of a pair are half of the
    rotated width apart, or adjacent. The rotated dimensions come first or last in the head.
    """
    handed = cos.shape[-1]
    for pairs in dict.fromkeys((handed // 2, handed)):
        if not 0 < 2 * pairs <= width:
            continue
        for start in dict.fromkeys((0, width - 2 * pairs)):
            at = torch.arange(pairs, device=cos.device)
            for first, second in ((at, at + pairs), (2 * at, 2 * at + 1)):
                takes = [slice(0, pairs)]
                if handed == 2 * pairs and not torch.equal(cos[..., :pairs], cos[..., pairs:]):
                    takes = [slice(0, handed, 2)]  # each cosine is repeated: c0, c0, c1, c1, ...
                for take in takes:
                    yield Rotation(start + first, start + second, cos[..., take], sin[..., take])
    none = torch.zeros(0, dtype=torch.long, device=cos.device)
    yield Rotation(none, none, cos[..., :0], sin[..., :0])


def _equal(vectors: Float[Tensor, "text head pos d"]) -> bool:
    apart = (vectors - vectors[:, :, :1]).abs().max()
    return bool(apart <= EQUAL.get(vectors.dtype, 1e-3) * vectors.abs().max())
