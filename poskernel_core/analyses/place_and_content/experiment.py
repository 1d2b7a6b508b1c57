"""Run texts, undo the rotation of their keys, and turn every key to every place."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.place_and_content.formulas import shares, variances
from poskernel_core.analyses.place_and_content.spec import PlaceAndContent, PlaceAndContentParams
from poskernel_core.common.groups import first_in_equal_groups, groups_of
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.rotation import Rotation
from poskernel_core.models.geometry import Geometry

NUMBERS = 2**22
"""Most numbers of turned queries in a batch."""

CPU = torch.device("cpu")


class _Tables(Observer):
    """Sums the parts of the variance by group: ``sums [part, group, layer, head, query]``."""

    wants_rotations = True

    def __init__(
        self, geometry: Geometry, positions: tuple[int, ...], groups: int, skip: int
    ) -> None:
        self.sums = np.zeros((5, groups, geometry.n_layers, geometry.n_heads, len(positions)))
        self._positions, self._skip = positions, skip
        self._rotation: Rotation | None = None

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        self._rotation = rotation.to(CPU) if len(rotation.first) else None

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        rotation, self._rotation = self._rotation, None  # the next layer may have none
        queries, keys = (each.to(CPU).double() for each in (call.q, call.k))
        if rotation is not None:
            keys = rotation.turned(*rotation.turned_back(keys), keys)
        groups = self.sums.shape[1]
        own = np.eye(groups)[[sample % groups for sample in batch.samples]]  # [text, group]
        for place, n in enumerate(self._positions):
            seen = slice(call.rule.first_visible(n, self._skip), n + 1)
            if seen.start > n:
                continue
            turned = call.scale * turned_to(rotation, queries[:, :, n], seen)
            turned = turned.unflatten(1, (keys.shape[1], -1))  # [text, kv, head of kv, place, d]
            parts = variances(turned.numpy(), keys[:, :, None, seen].numpy())
            summed = np.einsum("tg,ptkh->pgkh", own, parts)
            self.sums[:, :, call.layer, :, place] += summed.reshape(*summed.shape[:2], -1)


def turned_to(
    rotation: Rotation | None, query: Float[Tensor, "text head d"], places: slice
) -> Float[Tensor, "text head place d"]:
    """Return what a query, already rotated, compares with a key before rotation at each place.

    The transposed rotation of each place is applied; without rotation there is a single place.
    """
    here = query[:, :, None]
    if rotation is None:
        return here
    cos, sin = (each[:, None, places].double() for each in (rotation.cos, rotation.sin))
    one, two = here[..., rotation.first], here[..., rotation.second]
    wide = here.expand(-1, -1, cos.shape[2], -1)
    return rotation.turned(one * cos + two * sin, two * cos - one * sin, wide)


def place_and_content(
    subject: ExperimentContext,
    statistics: Statistics,
    params: PlaceAndContentParams,
    progress: Progress,
) -> Result:
    """Run the texts; see :class:`PlaceAndContent`."""
    texts, geometry = (
        first_in_equal_groups(subject.windows, params.first_windows),
        subject.model.geometry,
    )
    seen = _Tables(geometry, subject.positions, groups_of(len(texts)), params.skip)
    wide = texts.shape[1] * geometry.n_heads * geometry.d_head
    size = subject.batch or max(1, NUMBERS // wide)
    for first in range(0, len(texts), size):
        progress(first, len(texts))
        some = range(first, min(first + size, len(texts)))
        tokens = torch.from_numpy(np.ascontiguousarray(texts[some.start : some.stop]))
        subject.model.run(tokens, observers=[seen], samples=some, until=-1)
    progress(len(texts), len(texts))
    groups = range(seen.sums.shape[1])
    return PlaceAndContent.estimated(
        subject,
        params,
        shares(seen.sums.sum(axis=1)),
        [shares(np.delete(seen.sums, group, axis=1).sum(axis=1)) for group in groups],
        coordinates={"query": np.array(subject.positions)},
        provenance={"first_windows": len(texts)},
    )
