"""Convert the weights of a GGUF file to safetensors, once; they then load like any model's.

Names and layouts are llama.cpp's. The package ``gguf`` knows the names and opens the blocks, and
transformers lays the tensors out as its models expect them, one tensor at a time.
"""

import importlib.metadata
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, dequantize, get_tensor_name_map
from torch import nn
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

from poskernel_core import __version__
from poskernel_core.common.errors import NoSpace
from poskernel_core.common.files import read_object
from poskernel_core.forward.attn_only import mismatch
from poskernel_core.forward.memory import gigabytes
from poskernel_core.models.catalog import Located
from poskernel_core.models.gguf import Header, check_same, read_header, writing
from poskernel_core.models.gguf_config import FACTORS

LAYOUT = 1
"""Version of the conversion; increase it when the converted files change."""

WEIGHTS = "model.safetensors"
ABOUT = "gguf.json"


def is_converted(located: Located) -> bool:
    """Tell whether a GGUF file has a complete, up-to-date converted model directory."""
    directory = Path(str(located.directory))
    try:
        manifest = read_object(directory / ABOUT)
        size = (directory / WEIGHTS).stat().st_size
    except (OSError, ValueError):
        return False
    return _about(located, size).items() <= manifest.items()


def convert(located: Located, make_skeleton: Callable[[Path], nn.Module]) -> None:
    """Convert a GGUF file to a float32 model directory, unless another process has done it.

    ``make_skeleton`` creates the model of a directory's ``config.json`` on the meta device.

    Raises:
        ValueError: tensors are missing, unexpected, or have the wrong shape.
    """
    name, file, directory = located.spec.name, located.gguf, located.directory
    if file is None or directory is None:
        raise ValueError("it is not a GGUF file")
    header, unfinished = read_header(name, file), directory / ".weights.partial"
    with writing(name, directory / "convert.lock"):
        if is_converted(located):
            return
        size, free = 4 * header.numbers, shutil.disk_usage(directory).free
        if size > free:
            raise NoSpace(
                f"{name!r} takes {gigabytes(size)} of disk as it is read, {gigabytes(free)} are "
                "free: whoever runs this server can make room, or set POSKERNEL_CACHE to another "
                "directory."
            )
        (directory / "config.json").write_text(json.dumps(located.config, indent=1))
        parameters = make_skeleton(directory).named_parameters()
        shapes = {key: tuple(parameter.shape) for key, parameter in parameters}
        try:
            with unfinished.open("wb") as stream:
                write_weights(stream, shapes, _read(file, header, located.config, shapes))
            check_same(name, file, located.spec.fingerprint)
            os.replace(unfinished, directory / WEIGHTS)
        finally:
            unfinished.unlink(missing_ok=True)
        about = _about(located, (directory / WEIGHTS).stat().st_size)
        used = ("gguf", "numpy", "transformers")
        versions = {package: importlib.metadata.version(package) for package in used}
        about |= {"file": file.name, "versions": {"poskernel": __version__} | versions}
        (directory / ABOUT).write_text(json.dumps(about, indent=1))


def _about(located: Located, size: int) -> dict[str, Any]:
    return {
        "layout": LAYOUT,
        "sha256": located.spec.fingerprint,
        "quantisation": located.quantisation,
        "config": located.config,
        "bytes": size,
    }


def _read(
    file: Path, header: Header, config: dict[str, Any], parameters: Iterable[str]
) -> Iterator[tuple[str, np.ndarray]]:
    kind = header.values["general.architecture"]
    number = next(key for key, architecture in MODEL_ARCH_NAMES.items() if architecture == kind)
    names = get_tensor_name_map(number, config["num_hidden_layers"])
    left = {tensor.name: tensor for tensor in header.tensors if tensor.name != FACTORS}
    paired = {}
    for parameter in parameters:
        stored = left.pop(str(names.get_name(parameter, (".weight", ".bias"))), None)
        if stored is None:
            raise ValueError(f"the tensor of {parameter} is missing")
        paired[parameter] = stored
    if left:
        raise ValueError(f"{len(left)} tensors are beyond the model, first {min(left)!r}")
    alike = "gemma2" if kind == "gemma" else kind  # transformers lacks the first generation
    processor = TENSOR_PROCESSORS.get(alike, TensorProcessor)(config)
    for parameter, stored in paired.items():
        data = np.fromfile(file, np.uint8, stored.size, offset=stored.start)
        rows = data.reshape(*stored.shape[:-1], -1)
        numbers = dequantize(rows, GGMLQuantizationType(stored.kind)).reshape(stored.shape)
        if parameter != "lm_head.weight":  # GPT-2's would be put elsewhere
            numbers = processor.process(numbers, stored.name).weights
        yield parameter, np.ascontiguousarray(numbers, np.float32)


def write_weights(
    stream: BinaryIO, shapes: dict[str, tuple[int, ...]], tensors: Iterator[tuple[str, np.ndarray]]
) -> None:
    """Write tensors as safetensors, with one tensor in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for name, numbers in tensors:
        if numbers.shape != shapes[name]:
            raise ValueError(mismatch(name, numbers.shape, shapes[name]))
        stream.write(numbers.astype("<f4", copy=False).data)
    stream.flush()
    os.fsync(stream.fileno())
