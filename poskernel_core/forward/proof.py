"""Check that our attention equals the model's own, on some tokens, when a model is loaded.

A configuration may have a setting that we do not know, and transformers may change an architecture.
So the same tokens are run through our attention and through transformers' eager attention, and
their patterns and logits are compared. There are a few more tokens than the longest window (or
chunk) of a layer has, so that its end is seen; a window of more than ``MAX_WINDOW`` tokens is
compared with the geometry alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.adapters import adapted, own_attention, release
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.loaded import LoadedModel, choose_attention
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import EXACT

TOLERANCE = 1e-4
"""Largest allowed difference of patterns and logits, computed in float32 for any weights."""
TOKENS = 29
"""Tokens of the proof beyond the longest window; so many rows are compared at either end."""
MAX_WINDOW = 1024
"""Longest window that is proved: eager attention takes the square of the tokens in memory."""


@dataclass(frozen=True)
class Difference:
    """Differences between our attention and the model's own.

    Attributes:
        pattern: largest difference of an attention probability.
        logits: largest difference of a logit, relative to the largest absolute logit.
    """

    pattern: float
    logits: float

    @property
    def largest(self) -> float:
        """The larger of the two differences; NaN counts as infinite."""
        both = torch.tensor([self.pattern, self.logits], device="cpu")
        return float(both.nan_to_num(torch.inf, torch.inf).max())


def prove(model: LoadedModel) -> Difference:
    """Check that our attention agrees with the model's own."""
    with in_float32(model.module):
        gap = difference(model)
    if gap.largest > TOLERANCE:
        raise UnsupportedModel(
            f"PosKernel computes the attention of {model.located.spec.name!r} otherwise than "
            f"transformers: patterns differ by up to {gap.pattern:.2g}, logits by "
            f"{gap.logits:.2g} of the largest (at most {TOLERANCE:g} is allowed); choose another "
            "model."
        )
    return gap


def difference(model: LoadedModel, tokens: Tensor | None = None) -> Difference:
    """Return the differences of patterns and logits from transformers' own, on these tokens.

    Compared are the patterns of the first and last 29 queries, and the logits of the last 29. The
    default is arbitrary tokens, 29 more than the longest window of up to ``MAX_WINDOW`` tokens has.
    The logits come from a pass without observers, which uses the fused kernel where possible.
    """
    tokens = beyond_windows(model) if tokens is None else tokens
    length = tokens.shape[1]
    rows = torch.arange(length, device="cpu")
    ours = Patterns(rows[(rows < TOKENS) | (rows >= length - TOKENS)])
    with EXACT:
        logits = model.run(tokens, keep=TOKENS)
        model.run(tokens, observers=[ours], until=-1)
        theirs, own = _eager(model, tokens, ours.rows)
    _check_windows(model, ours.windows, length)
    if tuple(sorted(theirs)) != model.geometry.with_heads:
        return Difference(float("inf"), float("inf"))
    apart = [
        float((_as_shared(ours.kept[layer], pattern) - pattern.float()).abs().max())
        for layer, pattern in theirs.items()
    ]
    largest = float(own.abs().max().clamp(min=torch.finfo(torch.float32).tiny))
    return Difference(max(apart), float((logits - own).abs().max()) / largest)


def _as_shared(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return our pattern without the sink's share where theirs is (Granite scales outputs by it).

    The logits prove the share.
    """
    sums_to_one = bool((theirs.float().sum(dim=-1) - 1).abs().max() < TOLERANCE)
    return ours / ours.sum(dim=-1, keepdim=True).clamp(min=1e-30) if sums_to_one else ours


def beyond_windows(model: LoadedModel) -> Tensor:
    """Return arbitrary token ids, more of them than the longest window has."""
    windows = [layer.window or 0 for layer in model.geometry.layers]
    return made_up(
        model, TOKENS + max([window for window in windows if window <= MAX_WINDOW] + [0])
    )


def made_up(model: LoadedModel, length: int = TOKENS) -> Tensor:
    """Return arbitrary token ids, all different if the vocabulary is large enough."""
    return tokens_of(model.geometry.n_vocab, min(length, model.geometry.n_ctx))


def tokens_of(vocabulary: int, length: int = TOKENS) -> Tensor:
    """Return arbitrary token ids ``[1, length]`` of a vocabulary."""
    return ((torch.arange(length, device="cpu") * 7919 + 11) % vocabulary)[None]


def _check_windows(model: LoadedModel, seen: dict[int, int | None], length: int) -> None:
    for layer, declared in enumerate(model.geometry.layers):
        actual = seen.get(layer)
        beyond = not actual and (declared.window or 0) >= length
        if not (declared.reason or actual == declared.window or beyond):
            said = f"a window of {declared.window or 'all'} tokens"
            raise _unknown(model, layer, said, f"one of {actual or 'all'}")


def check_layers(model: LoadedModel) -> None:
    """Run a few tokens, and check each layer's number and width of heads against our geometry."""
    seen = _HeadShapes()
    model.run(made_up(model)[:, :3], observers=[seen])
    geometry = model.geometry
    for layer in range(geometry.n_layers):
        own = geometry.layers[layer] if geometry.layers else geometry
        shape = geometry.n_heads, own.n_kv_heads, own.d_head
        said = None if geometry.reason(layer) else shape
        if said != (actual := seen.shapes.get(layer)):
            raise _unknown(model, layer, _heads(said), _heads(actual))


def _unknown(model: LoadedModel, layer: int, said: str, actual: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"The config.json of {model.located.spec.name!r} is read as {said} in layer {layer}, and "
        f"the model has {actual} there: PosKernel does not know this architecture well enough; "
        "choose another model."
    )


def _heads(shape: tuple[int, int, int] | None) -> str:
    if shape is None:
        return "no heads"
    heads, shared, width = shape
    return f"{heads} heads of width {width} that share {shared} keys"


class _HeadShapes(Observer):
    def __init__(self) -> None:
        self.shapes: dict[int, tuple[int, int, int]] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self.shapes[call.layer] = (call.q.shape[1], call.k.shape[1], call.q.shape[-1])


class Patterns(Observer):
    """Record some rows of every layer's pattern, ``[text, head, row, key]``, and its window."""

    wants_patterns = True

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.kept: dict[int, Tensor] = {}
        self.windows: dict[int, int | None] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Record the window or chunk of a layer."""
        self.windows[call.layer] = call.window or call.chunk

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Record the rows of a block."""
        texts, heads, count, keys = block.pattern.shape
        if block.layer not in self.kept:
            shape = texts, heads, len(self.rows), batch.tokens.shape[1]
            self.kept[block.layer] = block.pattern.new_zeros(shape)
        row = self.rows - block.first_row
        here = (row >= 0) & (row < count)
        place = self.kept[block.layer][..., block.first_key : block.first_key + keys]
        place[:, :, here] = block.pattern[:, :, row[here]]


def _eager(model: LoadedModel, tokens: Tensor, rows: Tensor) -> tuple[dict[int, Tensor], Tensor]:
    seen: dict[int, Tensor] = {}
    model.state.restore()
    architecture = model.geometry.architecture

    def keep(layer: int, _module: nn.Module, _args: Any, out: Any) -> None:
        square = [part for part in out if isinstance(part, Tensor) and part.ndim == 4]
        if square:
            seen[layer] = square[0][:, :, rows]

    with ExitStack() as stack, _own_attention(model), torch.inference_mode():
        for layer, attention in model.hooks.attentions.items():
            stack.enter_context(attention.register_forward_hook(partial(keep, layer)))
            if architecture == "falcon":
                hook = attention.register_forward_pre_hook(_once, with_kwargs=True)
                stack.enter_context(hook)
        # Layers that borrow keys compute only the queries whose logits are kept.
        borrowed = any(layer.keys_of is not None for layer in model.geometry.layers)
        given = {"use_cache": False, "logits_to_keep": 0 if borrowed else TOKENS}
        logits = model.module(tokens.to(model.device), **given).logits[:, -TOKENS:].float()
    return seen, logits


def _once(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Zero the ALiBi bias passed to Falcon's eager attention; the mask already includes the bias.

    transformers' eager attention adds the bias twice; the default attention adds it once, as in
    training.
    """
    if kwargs.get("alibi") is not None:
        kwargs = {**kwargs, "alibi": torch.zeros_like(kwargs["alibi"])}
    return args, kwargs


@contextmanager
def _own_attention(model: LoadedModel) -> Iterator[None]:
    architecture = model.geometry.architecture
    if own_attention(architecture):
        ours = {module: adapted(module) for module in model.hooks.attentions.values()}
        for attention in ours:
            release(attention)
        try:
            yield
        finally:
            for attention, methods in ours.items():
                vars(attention).update(methods)
        return
    before = model.module.config._attn_implementation
    choose_attention(model.module, "eager")
    try:
        yield
    finally:
        choose_attention(model.module, before)
