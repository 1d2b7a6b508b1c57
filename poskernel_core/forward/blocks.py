"""Find the norms and maps of a model's blocks by what they read and put out, on a few tokens."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.loaded import LoadedModel
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import EXACT
from poskernel_core.forward.proof import made_up

EQUAL = {torch.float32: 1e-4, torch.bfloat16: 6e-2}
"""Largest difference of values that count as equal, relative to the largest of them."""
LARGE = 1024.0
"""Size of the vectors that probe a norm: large enough for its epsilon not to count."""


def known_blocks(model: LoadedModel) -> list[Block]:
    """Return how every block is built; found once, and kept with the model."""
    if any(parameter.is_meta for parameter in model.module.parameters()):
        raise UnsupportedModel(
            f"Some weights of {model.located.spec.name!r} stay on the disk, where they cannot be "
            "split into components: choose a smaller model, or another machine."
        )
    blocks: list[Block] = model.remember("blocks", None, lambda: _blocks_of(model))
    return blocks


@dataclass(frozen=True, eq=False)
class Block:
    """How one block is built; None for what it lacks.

    Attributes:
        norm: before attention.
        out: output projection of the heads; None in layers without heads.
        behind: norm of the attention output.
        has_mlp: whether anything but attention writes to the stream.
        neurons: in layer 0, the norm of the stream behind attention, and the maps into and out of
            the neurons that read it.
    """

    norm: nn.Module | None = None
    out: nn.Module | None = None
    behind: nn.Module | None = None
    has_mlp: bool = True
    neurons: tuple[nn.Module, nn.Module, nn.Module] | None = None


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm that is linear once its scale is fixed: ``gain * P x / sigma + bias``.

    ``centred`` tells whether ``P`` subtracts the mean over dimensions (LayerNorm; RMSNorm does
    not); ``eps`` is the constant added to the variance.
    """

    gain: Tensor
    bias: Tensor
    centred: bool
    eps: float = 0.0

    @staticmethod
    def of(module: nn.Module | None, like: Tensor) -> Norm:
        """Read a norm of vectors like these by what it puts out for a few."""
        if module is None:
            return Norm(torch.ones_like(like), torch.zeros_like(like), False)
        flat, wave = torch.full_like(like, LARGE), torch.full_like(like, LARGE)
        wave[..., 1::2] = -LARGE
        bias = module.forward(torch.zeros_like(like)).to(like)
        flat, wave_out = (module.forward(probe).to(like) - bias for probe in (flat, wave))
        centred = bool(flat.abs().max() < 1e-3 * wave_out.abs().max())
        wave = _centre(wave) if centred else wave
        eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None) or 0.0
        gain = wave_out * (wave.square().mean(-1, keepdim=True) + eps).sqrt() / wave
        return Norm(gain, bias, centred, eps)

    def linear(self, x: Tensor) -> Tensor:
        """Return the norm with scale 1, without its bias."""
        return self.gain * (_centre(x) if self.centred else x)

    def scale(self, x: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch"]:
        """Return ``1 / sigma`` of each row: ``1 / sqrt(variance + eps)``."""
        inside = _centre(x) if self.centred else x
        return (inside.square().mean(dim=-1) + self.eps).rsqrt()


def _centre(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def own_scale(true: Tensor, linear: Tensor) -> Tensor:
    """Return the factors of rows by which the linear part becomes the true one."""
    size = linear.square().sum(dim=-1)
    return torch.where(size > 0, (true * linear).sum(dim=-1) / size, 1.0)


def equal(one: Tensor, two: Tensor, floor: float = 0.0) -> bool:
    """Tell whether values are equal up to rounding, relative to the largest (or ``floor``)."""
    largest = max(float(two.abs().max()), floor)
    return bool((one - two).abs().max() <= EQUAL.get(one.dtype, 1e-4) * largest)


def _blocks_of(model: LoadedModel) -> list[Block]:
    """Find the parts of every block on a few tokens, and check that their outputs add up."""
    if getattr(model.module.config.get_text_config(), "kv_lora_rank", None):
        raise UnsupportedModel(
            f"{model.located.spec.name!r} has compressed keys, which are not split into components "
            "of the residual stream: choose a model whose layers make their keys of the stream."
        )
    structure = _Structure(model)
    with EXACT, structure.hooked(), in_float32(model.module):
        model.run(made_up(model), observers=[structure], keep=0)
        structure.close()
    return structure.blocks


def refused(model: LoadedModel, layer: int, why: str) -> UnsupportedModel:
    """Return the error of a model that is not split, and why."""
    return UnsupportedModel(
        f"{model.located.spec.name!r} is not split into components of the residual stream: in "
        f"layer {layer}, {why}; choose another model."
    )


def multiplier(model: LoadedModel) -> float:
    """Return the factor of everything that is added to the stream (Granite)."""
    config: Any = model.module.config.get_text_config()
    return float(getattr(config, "residual_multiplier", 1.0))


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a norm."""
    return "Norm" in type(module).__name__ and not any(True for _ in module.children())


def _is_map(module: nn.Module) -> bool:
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2


class _Structure(Observer):
    """Find the norms and the output projection of every block by what they read and put out."""

    def __init__(self, model: LoadedModel) -> None:
        self.blocks: list[Block] = []
        self._model = model
        self._norm: nn.Module | None = None
        self._stream = torch.empty(0)
        self._seen: list[tuple[nn.Module, Tensor | None, Tensor]] = []

    def hooked(self) -> ExitStack:
        stack = ExitStack()
        for layer in range(self._model.geometry.n_layers):
            for part in self._model.block(layer).modules():
                stack.enter_context(part.register_forward_hook(self._keep))
        return stack

    def _keep(self, module: nn.Module, args: Any, out: Any) -> None:
        first = out if isinstance(out, Tensor) else out[0] if isinstance(out, tuple) else None
        if isinstance(first, Tensor):
            home = self._model.hooks.home
            given = args[0].to(home) if args and isinstance(args[0], Tensor) else None
            self._seen.append((module, given, first.to(home, copy=True)))  # Falcon adds in place

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer:
            self._close(layer - 1, x)
        self._stream, self._seen = x.clone(), []

    def close(self) -> None:
        """Close the last block, with its own output."""
        self._close(self._model.geometry.n_layers - 1, self._seen[-1][2])

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        norms = [part for part, _, out in self._seen if is_norm(part) and torch.equal(out, x)]
        if not norms and not torch.equal(x, self._stream):
            raise refused(self._model, layer, "attention reads more than the normed stream")
        self._norm = norms[-1] if norms else None

    def _close(self, layer: int, after: Tensor) -> None:
        attention = self._model.hooks.attentions.get(layer)
        if attention is None:
            self.blocks.append(Block())
            return
        inside = set(attention.modules())
        module, put_out = [
            (part, out) for part, _, out in self._seen if part in inside and _is_map(part)
        ][-1]
        behind = [
            (part, out)
            for part, given, out in self._seen
            if is_norm(part) and given is not None and part not in inside
            if given.shape == put_out.shape and torch.equal(given, put_out)
        ]
        by_heads, factor = behind[-1][1] if behind else put_out, multiplier(self._model)
        rest = after - self._stream - factor * by_heads.reshape(after.shape)
        floor = 1e-2 * float(after.abs().max())
        outputs = (out for *_, out in self._seen if out.numel() == rest.numel())
        has_mlp = not equal(rest, torch.zeros_like(rest), floor)
        if has_mlp and not any(equal(factor * out.reshape(rest.shape), rest) for out in outputs):
            raise refused(self._model, layer, "heads and MLP are not all that is added to it")
        between = self._stream + factor * by_heads.reshape(after.shape)
        neurons = None if layer else self._neurons(inside, between)
        norm = behind[-1][0] if behind else None
        self.blocks.append(Block(self._norm, module, norm, has_mlp, neurons))

    def _neurons(
        self, attention: set[nn.Module], between: Tensor
    ) -> tuple[nn.Module, nn.Module, nn.Module] | None:
        """Find the norm of the stream behind attention, and the first and last map behind it."""
        outside = [
            (part, given, out)
            for part, given, out in self._seen
            if part not in attention and given is not None
        ]
        same = [call for call in outside if call[1].numel() == between.numel()]  # OPT flattens
        norms = [
            (part, out)
            for part, given, out in same
            if is_norm(part) and equal(given.reshape(between.shape), between)
        ]
        maps = [call for call in outside if _is_map(call[0])]
        reads = [call for call in maps if norms and torch.equal(call[1], norms[0][1])]
        if not reads:
            return None
        inner = {part for reader, *_ in reads for part in reader.modules() if part is not reader}
        first, last = next(call for call in reads if call[0] not in inner), maps[-1]
        fits = first[2].shape[-1] == last[1].shape[-1] and first[0] is not last[0]
        return (norms[0][0], first[0], last[0]) if fits else None
