"""Read a configuration through transformers: build its model without memory, and look at it.

The model is built on torch's meta device, where tensors have shapes and no numbers, with the hooks
that a loaded model has. A few tokens run through it; each layer's call of the attention function
tells its heads, its keys and its window. What depends on numbers (which expert a token goes to) is
answered by nothing. A process without torch runs this module: JSON in, JSON out.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from poskernel_core.common.errors import PosKernelError, UnsupportedModel
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.hooks import Hooks
from poskernel_core.forward.loaded import attach, blocks_of, positions_of
from poskernel_core.models import configuration
from poskernel_core.models.geometry import CHUNKED, FULL, NONE, SLIDING, Geometry, Layer

TESTED = (5, 24)
"""The newest transformers whose models were tested."""
TOKENS = 5
SCALAR = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001
INDEX = torch.ops.aten.index.Tensor
COPY = torch.ops.aten._to_copy.default  # noqa: SLF001
MAX_FILLED = 2**20
"""Largest tensor without numbers that is made zeros where its numbers matter."""

CANNOT_RUN = "{} cannot be run on a few tokens, as transformers says"
IGNORED = re.compile(
    r"^_?(attn|experts)_implementation|^auto_map$|^(num_labels|id2label|label2id|(torch_)?dtype)$"
)
"""Fields that change no logit: which kernels to use, code of others, classes, precision."""

CONTEXTS = ("max_position_embeddings", "max_seq_len", "seq_length", "n_positions")
UNBOUNDED = 2048
"""Context of models that have no bound and name none."""

LINEAR = "Delta|Linear[A-Z]|Lightning|Rwkv"
HEADLESS = {
    "Mamba|SSM|Mixer": "a state-space layer, without attention",
    "Conv": "a convolution, without attention",
    LINEAR: "linear attention, which has no softmax",
    "Recurrent|LSTM": "a recurrent layer, without attention",
    "MoE|Moe|Experts": "experts alone, without attention",
    "MLP|Mlp": "an MLP alone, without attention",
}
"""Why a layer has no heads, by the class of one of its parts."""


def read(name: str, config: dict[str, Any]) -> Geometry:
    """Return the attention geometry of a hub-format configuration."""
    built = build(name, config)
    with refusing(name, CANNOT_RUN):
        built._experts_implementation = "eager"  # noqa: SLF001 - others want numbers in bfloat16
        module = skeleton(name, built)
        return _look(name, module, built.get_text_config(decoder=True))


def build(name: str, config: dict[str, Any]) -> Any:
    """Return transformers' configuration of a ``config.json``."""
    kind = configuration.model_type(config)
    if kind not in CONFIG_MAPPING:
        raise UnsupportedModel(
            f"{name!r} is of architecture {kind[:60]!r}, which the installed transformers does not "
            "know: update it, or choose another model."
        )
    with refusing(name, "The config.json of {} describes no model that transformers builds"):
        built = CONFIG_MAPPING[kind].from_dict(_plain(config))
        if built.is_encoder_decoder:
            raise UnsupportedModel(
                f"{name!r} is an encoder with a decoder, which is not read: choose a decoder."
            )
        if getattr(built, "activation_function", None) == "gelu_new":
            built.activation_function = "gelu_pytorch_tanh"  # the same formula, fused
        return built


def _plain(value: Any) -> Any:
    """Return a copy of a configuration without what changes no logit, nested too."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__float__"}:  # as transformers writes infinity in JSON
        return float(value["__float__"])
    return {field: _plain(item) for field, item in value.items() if not IGNORED.search(field)}


def kind_of(name: str, config: Any) -> Any:
    """Return the auto class of transformers that creates a model.

    Models that also read images are created completely, and run on text only.
    """
    for kind in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in kind._model_mapping:  # noqa: SLF001
            return kind
    raise UnsupportedModel(
        f"{name!r} is of architecture {config.model_type!r}, which transformers runs as no "
        "language model: choose another model."
    )


def skeleton(name: str, config: Any) -> PreTrainedModel:
    """Create a model on the meta device, which allocates no memory."""
    with torch.device("meta"):
        made: PreTrainedModel = kind_of(name, config).from_config(config)
    return made


@contextmanager
def refusing(name: str, sentence: str) -> Iterator[None]:
    """Refuse a model if anything fails: its files can make transformers raise any exception."""
    try:
        yield
    except PosKernelError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        why = f"there is no {text}" if isinstance(error, KeyError) else text[:250]
        refusal = f"{sentence.format(repr(name))}: {why or type(error).__name__}"
        raise UnsupportedModel(f"{refusal} {newer_than_tested()}".strip()) from error


def newer_than_tested() -> str:
    """Say that transformers is newer than what was tested; empty if it is not."""
    here = tuple(map(int, re.findall(r"\d+", transformers.__version__)[:2]))
    if here <= TESTED:
        return ""
    tested = ".".join(map(str, TESTED))
    return (
        f"(transformers {transformers.__version__} is newer than {tested}, the newest tested: each "
        "model is compared with its own attention when it is loaded.)"
    )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # noqa: SLF001 - data_ptr() is 0 without numbers


class _Seen(Hooks):
    """Hooks that keep each layer's call, and which layers use what the rotary modules put out."""

    def __init__(self) -> None:
        super().__init__(torch.device("meta"))
        self.calls: dict[int, AttentionCall] = {}
        self.rotated_layers: set[int] = set()
        self.turns: dict[int, Tensor] = {}
        self.layer = -1

    def _residual(self, layer: int, *_: Any) -> None:
        self.layer = layer

    def _rotation(self, module: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.keep_turn(*(leaf for leaf in tree_iter(out) if isinstance(leaf, Tensor)))

    def rotated(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keep cosines and sines of a module that makes its own."""
        self.rotated_layers.add(self.layer)
        return cos, sin

    def keep_turn(self, *tensors: Tensor) -> None:
        """Note tensors that hold nothing but angles."""
        self.turns |= {_storage(tensor): tensor for tensor in tensors}

    def attend(self, call: AttentionCall) -> Tensor:
        """Keep a call, and return something of the shape of the heads' outputs."""
        if call.layer in self.calls:
            raise UnsupportedModel(
                f"Layer {call.layer} attends twice and uses both patterns together, which is not "
                "split into heads: choose another model."
            )
        self.calls[call.layer] = call
        return call.v.repeat_interleave(call.q.shape[1] // call.v.shape[1], dim=1)


class _WithoutNumbers(TorchDispatchMode):
    """Answer what depends on numbers that are not there: no index, zero, and true."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__()
        self._seen = seen
        self._constants: dict[int, tuple[Tensor, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        tensors = [leaf for leaf in tree_iter((args, given)) if isinstance(leaf, Tensor)]
        bare = [tensor for tensor in tensors if tensor.is_meta]
        if bare and func is SCALAR:
            return bare[0].dtype == torch.bool
        if bare and func is INDEX and len(bare) == 1 and args[0].is_meta:
            shape = torch.broadcast_shapes(*(index.shape for index in args[1]))
            return torch.full(shape, self._number(args[0]), dtype=args[0].dtype, device="cpu")
        if bare and func is torch.ops.aten.nonzero.default:
            return torch.empty(0, bare[0].ndim, dtype=torch.long, device="meta")
        leaves = func is COPY and str(given.get("device", "meta")) != "meta"
        if bare and (leaves or any(not tensor.is_meta and tensor.ndim for tensor in tensors)):
            args, given = tree_map(self._filled, (args, given))
        out = func(*args, **given)
        if func is torch.ops.aten.full.default:
            self._constants[_storage(out)] = out, args[1]
        angles = [_storage(tensor) in self._seen.turns for tensor in bare]
        if angles and all(angles) and isinstance(out, Tensor) and out.is_meta:
            self._seen.keep_turn(out)
        elif any(angles):
            self._seen.rotated_layers.add(self._seen.layer)
        return out

    def _filled(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_meta:
            return value
        if value.numel() > MAX_FILLED:
            raise ValueError(f"it looks at the numbers of a tensor of shape {list(value.shape)}")
        return torch.full(value.shape, self._number(value), dtype=value.dtype, device="cpu")

    def _number(self, value: Tensor) -> Any:
        return self._constants.get(_storage(value), (value, 0))[1]


def _look(name: str, module: PreTrainedModel, config: Any) -> Geometry:
    n_layers = getattr(config, "decoder_layers", getattr(config, "num_hidden_layers", 0))
    seen = _Seen()
    architecture = str(config.model_type)
    blocks = blocks_of(module, n_layers)
    attach(seen, module, n_layers, architecture)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    with torch.no_grad(), _WithoutNumbers(seen), torch.device("meta"):
        module(tokens, use_cache=False)
    learned = positions_of(module) is not None
    kinds = getattr(config, "layer_types", None) or [""] * n_layers
    layers = tuple(
        _layer(name, seen, layer, blocks[layer], learned, _base(config, kinds[layer]))
        for layer in range(n_layers)
    )
    if not seen.calls:
        raise UnsupportedModel(
            f"No layer of {name!r} has attention heads: choose a model with attention."
        )
    heads = {call.q.shape[1] for call in seen.calls.values()}
    if len(heads) > 1:
        raise UnsupportedModel(
            f"The layers of {name!r} have {' or '.join(map(str, sorted(heads)))} heads: choose a "
            "model whose layers all have the same number."
        )
    (n_heads,) = heads
    shared = {layer.n_kv_heads for layer in layers if layer.reason is None}
    if len(shared) > 1:  # every layer's key heads can be repeated to this number
        every = range(max(shared), n_heads)
        fits = (n for n in every if not (n_heads % n or any(n % count for count in shared)))
        shared = {next(fits, n_heads)}
    alibi = any(call.slopes is not None for call in seen.calls.values())
    return Geometry(
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=max(shared),
        d_model=module.get_input_embeddings().weight.shape[1]
        if not hasattr(config, "hidden_size")
        else int(config.hidden_size),
        d_head=max(layer.d_head for layer in layers),
        n_ctx=next(
            (size for field in CONTEXTS if type(size := getattr(config, field, None)) is int),
            UNBOUNDED,
        ),
        n_vocab=int(config.vocab_size),
        architecture=architecture,
        scheme="learned" if learned else "ALiBi" if alibi else "rotary" if seen.turns else "no",
        layers=layers,
        numbers=sum(parameter.numel() for parameter in module.parameters()),
    )


def _layer(
    name: str, seen: _Seen, layer: int, block: nn.Module, learned: bool, base: float | None
) -> Layer:
    call = seen.calls.get(layer)
    if call is None:
        parts = [type(part).__name__ for part in block.modules()]
        own = (part for part in parts if "Attention" in part and not re.search(LINEAR, part))
        if outside := next(own, None):
            raise UnsupportedModel(
                f"{outside} in layer {layer} of {name!r} does not call transformers' attention "
                "interface, so that it cannot be replaced: choose another model."
            )
        reasons = (why for pattern, why in HEADLESS.items() if re.search(pattern, " ".join(parts)))
        return Layer(NONE, 0, 0, positions=False, reason=next(reasons, "no attention"))
    earlier = (at for at, former in seen.calls.items() if at < layer and former.k is call.k)
    turned = layer in seen.rotated_layers
    return Layer(
        SLIDING if call.window else CHUNKED if call.chunk else FULL,
        call.q.shape[3],
        call.k.shape[1],
        call.window or call.chunk,
        learned or turned or call.slopes is not None,
        base if turned else None,
        keys_of=next(earlier, None),
    )


def _base(config: Any, kind: str) -> float | None:
    parameters = getattr(config, "rope_parameters", None)
    own = parameters.get(kind, parameters) if isinstance(parameters, dict) else {}
    value = own.get("rope_theta") if isinstance(own, dict) else None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18
    return float(value) if fits and value is not None else None


def main() -> None:
    """Answer what stands in the standard input."""
    request = json.load(sys.stdin)
    try:
        answer: dict[str, Any] = {"geometry": read(request["name"], request["config"]).as_json()}
    except UnsupportedModel as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer))


configuration.readers[:] = [read]

if __name__ == "__main__":
    main()
