"""See in a running model which layers use positions, and how.

Each attention module is run by itself, on the same vector at every position. A module that adds no
position then has the same key everywhere, so that all visible keys get the same score.
"""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from poskernel_core.forward.loaded import LoadedModel
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.rotation import attention_call
from poskernel_core.models.positions import ALIBI, NONE, ROTARY, PositionUse

LENGTH = 16
"""Tokens of the probed text."""

EQUAL = 1e-4
"""Largest difference of equal vectors, relative to their largest number, in float32."""


def probe_positions(model: LoadedModel) -> PositionUse:
    """Return how the running model uses positions.

    What cannot be seen, because the keys of a layer are zero or the context is one token, is as
    expected from the configuration.
    """
    seen, geometry = _Seen(model), model.geometry
    token = min(11, geometry.n_vocab - 1)
    tokens = torch.full((1, min(LENGTH, geometry.n_ctx)), token, device="cpu")
    with ExitStack() as stack:
        stack.enter_context(in_float32(model.module))
        for layer, attention in model.hooks.attentions.items():
            hook = attention.register_forward_pre_hook(seen.hook(layer), with_kwargs=True)
            stack.enter_context(hook)
        model.run(tokens, observers=[seen], until=-1)
    return PositionUse(
        embedded=seen.embedded, layers=tuple(seen.kinds[i] for i in range(geometry.n_layers))
    )


class _Seen(Observer):
    """Records whether the stream depends on position, and the kind of positions of each layer."""

    def __init__(self, model: LoadedModel) -> None:
        geometry = model.geometry
        self.embedded = geometry.scheme == "learned"
        own = geometry.scheme if geometry.scheme in (ROTARY, ALIBI) else NONE
        self.kinds = {i: own if each.positions else NONE for i, each in enumerate(geometry.layers)}

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        """See the stream of one token repeated."""
        if layer == 0 and (differs := _differs(x[0])) is not None:
            self.embedded = differs

    def hook(self, layer: int) -> Any:
        """Return a hook that runs the layer's attention on one vector, before it runs itself."""

        def probe(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
            x = args[0] if args else given["hidden_states"]
            vector = torch.randn(x.shape[-1], generator=torch.Generator("cpu").manual_seed(0))
            call = attention_call(module, layer, vector.to(x).expand_as(x), args[1:], given)
            differs = _differs(call.k[0].transpose(0, 1).flatten(1))
            if call.slopes is not None and any(call.slopes.per_head):
                self.kinds[layer] = ALIBI
            elif differs is not None:
                self.kinds[layer] = ROTARY if differs else NONE

        return probe


def _differs(rows: Tensor) -> bool | None:
    """Return whether vectors ``[pos, d]`` differ; None if that cannot be seen."""
    rows, largest = rows.float(), float(rows.abs().max())
    if len(rows) < 2 or largest == 0:
        return None
    return float((rows - rows[:1]).abs().max()) > EQUAL * largest
