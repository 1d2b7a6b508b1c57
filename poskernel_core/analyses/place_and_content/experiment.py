"""Run texts, undo the rotation of their keys, and sum the variances of the scores."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.place_and_content.formulas import shares, variances
from poskernel_core.analyses.place_and_content.spec import PlaceAndContent, PlaceAndContentParams
from poskernel_core.common.groups import first_in_equal_groups, groups_of
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.rotation import Rotation
from poskernel_core.models.geometry import Geometry
from poskernel_core.statistics.moments import of_sums

NUMBERS = 2**22
"""Most numbers of one layer's queries and keys in a batch."""

CPU = torch.device("cpu")


class _Tables(Observer):
    """Sums the parts of the variance by group: ``sums [group, part, layer, head, query]``."""

    wants_rotations = True

    def __init__(
        self, geometry: Geometry, positions: tuple[int, ...], groups: int, skip: int
    ) -> None:
        self.sums = np.zeros((groups, 5, geometry.n_layers, geometry.n_heads, len(positions)))
        self._positions, self._skip = positions, skip
        self._rotations: dict[int, Rotation] = {}

    def rotation(self, layer: int, rotation: Rotation, batch: Batch) -> None:
        self._rotations[layer] = rotation.to(CPU)

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        rotation = self._rotations.pop(call.layer, None)
        if rotation is None:  # a layer without heads
            return
        at, keys = list(self._positions), call.k.to(CPU).double()
        queries = both_turns(rotation, call.q[:, :, at].to(CPU).double())
        grouped = queries.unflatten(1, (keys.shape[1], -1)).numpy()  # [text, kv, head, query, 2, d]
        turns = turns_of(rotation, keys).numpy()
        before = rotation.turned(*rotation.turned_back(keys), keys).numpy()
        groups = len(self.sums)
        own = np.eye(groups)[[sample % groups for sample in batch.samples]]  # [text, group]
        for place, n in enumerate(at):
            seen = slice(call.rule.first_visible(n, self._skip), n + 1)
            if seen.start > n:
                continue
            parts = variances(grouped[:, :, :, place], turns[:, :, seen], before[:, :, seen])
            summed = np.einsum("tg,ptkh->gpkh", own, parts)
            self.sums[:, :, call.layer, :, place] += summed.reshape(*summed.shape[:2], -1)


def both_turns(
    rotation: Rotation, queries: Float[Tensor, "text head query d"]
) -> Float[Tensor, "text head query 2 d"]:
    """Return queries, and queries a quarter turn back: zeros where nothing is turned."""
    one, two = queries[..., rotation.first], queries[..., rotation.second]
    return torch.stack([queries, rotation.turned(two, -one, torch.zeros_like(queries))], dim=-2)


def turns_of(
    rotation: Rotation, keys: Float[Tensor, "text kv pos d"]
) -> Float[Tensor, "#text 1 pos 2 d"]:
    """Return cosines and sines of every dimension of the keys; 1 and 0 where nothing is turned."""
    cos, sin = (table[:, None].double() for table in (rotation.cos, rotation.sin))
    plain = torch.zeros_like(keys[: len(cos), :1])
    return torch.stack([rotation.turned(cos, cos, plain + 1), rotation.turned(sin, sin, plain)], -2)


def place_and_content(subject: ExperimentContext, params: PlaceAndContentParams) -> Result:
    """Run the texts; see :class:`PlaceAndContent`."""
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    geometry = subject.model.geometry
    seen = _Tables(geometry, subject.positions, groups_of(len(texts)), params.skip)
    wide = texts.shape[1] * (geometry.n_heads + geometry.n_kv_heads) * geometry.d_head
    for some, tokens in subject.batches(texts, max(1, NUMBERS // wide)):
        subject.model.run(tokens, observers=[seen], samples=some, until=-1)
    return PlaceAndContent.estimated(
        subject,
        params,
        of_sums(shares, seen.sums),
        coordinates={"query": np.array(subject.positions)},
        provenance={"first_windows": len(texts)},
    )
