"""Parse the header of a GGUF file: the model's metadata, and the position and type of its tensors.

The file is untrusted: every length is checked before anything is read. Neither torch nor
transformers is imported; :mod:`poskernel_core.forward.gguf_weights` reads the weights.
"""

import hashlib
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from poskernel_core.common.atomic_write import atomic_write, make_folder
from poskernel_core.common.errors import BadRequest, StoreFailed, UnknownModel, UnsupportedModel
from poskernel_core.common.files import may_not_read

SUFFIX = ".gguf"
MAX_HEADER_BYTES = 256 * 2**20
MAX_TEXT_BYTES = 16 * 2**20
MAX_VALUES = 65_536
MAX_TENSORS = 65_536
MAX_TEXTS = 4_000_000
MAX_DIMENSIONS = 4
LONG = 256
"""Lists longer than this are vocabularies; their values are dropped unless ``vocabulary`` is
set."""

NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
TEXT, LIST = 8, 9

BLOCKS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""The supported tensor types: name, numbers per block, bytes per block."""

FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
"""Common names of the values of ``general.file_type``."""


@dataclass(frozen=True)
class Stored:
    """A tensor's place and type in a file; ``shape`` begins with the slowest axis, as in torch."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


@dataclass(frozen=True)
class Header:
    """The parsed header of a file.

    Attributes:
        values: metadata by key; vocabularies are empty unless ``vocabulary`` was set.
        tensors: positions and types of the tensors.
    """

    values: dict[str, Any]
    tensors: tuple[Stored, ...]

    @property
    def numbers(self) -> int:
        """Total number of weights."""
        return sum(math.prod(each.shape) for each in self.tensors)

    @property
    def quantisation(self) -> str:
        """Common name of the weight format: ``Q4_K_M``, ``Q8_0``, ``F16``."""
        told = self.values.get("general.file_type")
        if type(told) is int and told in FILE_TYPES:
            return FILE_TYPES[told]
        sizes: Counter[str] = Counter()
        for each in self.tensors:
            sizes[BLOCKS[each.kind][0]] += math.prod(each.shape)
        return sizes.most_common(1)[0][0] if sizes else ""


def is_gguf(name: str) -> bool:
    """Tell whether a name is that of a GGUF file; the file need not exist."""
    return name.lower().endswith(SUFFIX) and not os.path.isdir(os.path.expanduser(name))


@contextmanager
def keeping(name: str) -> Iterator[None]:
    """Turn write errors of a GGUF conversion into one clear error.

    Raises:
        StoreFailed: writing failed. Clients see the message, so it does not name the cache folder.
    """
    try:
        yield
    except (OSError, BadRequest) as error:
        if isinstance(error, BadRequest) and type(error) is not BadRequest:
            raise  # the content was refused, not the location
        cause = error if isinstance(error, OSError) else error.__cause__
        why = getattr(cause, "strerror", None) or "its place is taken"
        raise StoreFailed(
            f"What is made of the GGUF file {name!r} cannot be kept ({why}): whoever runs this "
            "server can make room, or set POSKERNEL_CACHE to another directory."
        ) from error


def keep(name: str, file: Path, text: str) -> None:
    """Write a small file of a GGUF conversion atomically.

    Raises:
        StoreFailed: it cannot be written.
    """
    with keeping(name):
        make_folder(file.parent)
        atomic_write(file, lambda path: path.write_text(text, encoding="utf-8"))


def quantisation_note(quantisation: str) -> str:
    """Return the caveat about numbers from quantized weights; empty for unquantized ones.

    The formats of several models are separated by commas, as in ``Q4_1, Q8_0``.
    """
    found = [(each, re.search(r"(?:Q|FP)(\d)", each)) for each in quantisation.split(", ")]
    told = ", ".join(f"{bits[1]}-bit weights ({each})" for each, bits in found if bits)
    return f"{told}: numbers differ from the full-precision model's" if told else ""


def fingerprint(file: Path) -> str:
    """Return the SHA-256 of a file; cached by path, size and mtime."""
    state = file.stat()
    return _hashed(str(file), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1024)
def _hashed(path: str, _size: int, _time: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_same(name: str, file: Path, print_: str | None) -> None:
    """Check that a file still has its fingerprint.

    Raises:
        UnsupportedModel: the file has changed.
    """
    if fingerprint(file) != print_:
        raise UnsupportedModel(f"{name!r} has changed since it was found: ask again.")


def read_header(name: str, file: Path, *, vocabulary: bool = False) -> Header:
    """Return the header of a GGUF file; cached, except with its vocabulary.

    Raises:
        UnknownModel: no such file.
        UnsupportedModel: the file is damaged, or not a GGUF file.
        BadRequest: no permission to read the file.
    """
    if not os.path.isfile(file):
        raise UnknownModel(f"Expected a GGUF file, found none at {name!r}: check the path.")
    try:
        state = file.stat()
        if vocabulary:
            return _read(str(file), state.st_size, vocabulary=True)
        return _brief(str(file), state.st_size, state.st_mtime_ns)
    except PermissionError as error:
        raise may_not_read(file, error) from error
    except (OSError, ValueError) as error:
        raise UnsupportedModel(
            f"The GGUF file {name!r} is damaged, or something else ({error}): fetch it again."
        ) from error


@lru_cache(maxsize=64)
def _brief(path: str, size: int, _time: int) -> Header:
    return _read(path, size, vocabulary=False)


def _read(path: str, size: int, *, vocabulary: bool) -> Header:
    with open(path, "rb", buffering=2**18) as stream:
        return _Reader(stream, size, vocabulary).header()


class _Reader:
    """Parse a header sequentially; raise ValueError for anything invalid."""

    def __init__(self, stream: BinaryIO, size: int, vocabulary: bool) -> None:
        self.stream = stream
        self.size = size
        self.vocabulary = vocabulary
        self.place = 0
        self.texts = 0

    def header(self) -> Header:
        if self.take(4) != b"GGUF":
            raise ValueError("it does not begin with 'GGUF'")
        version, tensors, values = self.unpack("<IQQ")
        if version not in (2, 3):
            raise ValueError(f"expected version 2 or 3, little-endian, got {version}")
        if tensors > MAX_TENSORS or values > MAX_VALUES:
            raise ValueError(f"it claims {tensors} tensors and {values} values")
        found: dict[str, Any] = {}
        for _ in range(values):
            key = self.text()
            if key in found:
                raise ValueError(f"it says {key[:60]!r} twice")
            found[key] = self.value()
        listed = [self.described() for _ in range(tensors)]
        return Header(found, self.placed(listed, found.get("general.alignment", 32)))

    def take(self, count: int) -> bytes:
        if self.place + count > min(self.size, MAX_HEADER_BYTES):
            raise ValueError("its header ends too early, or is longer than any header")
        data = self.stream.read(count)
        if len(data) != count:
            raise ValueError("it ends too early")
        self.place += count
        return data

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def raw(self) -> bytes:
        (length,) = self.unpack("<Q")
        if length > MAX_TEXT_BYTES:
            raise ValueError(f"it claims a text of {length} bytes")
        return self.take(length)

    def text(self) -> str:
        return self.raw().decode("utf-8")

    def value(self) -> Any:
        (kind,) = self.unpack("<I")
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            return self.sequence()
        if kind not in NUMBERS:
            raise ValueError(f"it holds a value of kind {kind}")
        return self.unpack("<" + NUMBERS[kind])[0]

    def sequence(self) -> tuple[Any, ...]:
        kind, count = self.unpack("<IQ")
        kept = self.vocabulary or count <= LONG
        if kind == TEXT:
            self.texts += count
            if self.texts > MAX_TEXTS:
                raise ValueError(f"it claims a list of {count} texts")
            texts = (self.raw() for _ in range(count))
            return tuple(each.decode("utf-8") for each in texts if kept)
        if kind not in NUMBERS:
            raise ValueError(f"it holds a list of kind {kind}")
        data = self.take(count * struct.calcsize(NUMBERS[kind]))
        return struct.unpack(f"<{count}{NUMBERS[kind]}", data) if kept else ()

    def described(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        (count,) = self.unpack("<I")
        if count > MAX_DIMENSIONS:
            raise ValueError(f"tensor {name[:60]!r} has {count} dimensions")
        shape = self.unpack(f"<{count}Q")
        kind, offset = self.unpack("<IQ")
        return name, tuple(reversed(shape)), kind, offset

    def placed(
        self, listed: Sequence[tuple[str, tuple[int, ...], int, int]], alignment: Any
    ) -> tuple[Stored, ...]:
        """Return the tensors with their positions; check that they are in the file and disjoint."""
        if type(alignment) is not int or not 0 < alignment <= 2**20:
            raise ValueError(f"it aligns tensors to {str(alignment)[:40]}")
        begin, found = -(-self.place // alignment) * alignment, []
        for name, shape, kind, offset in listed:
            if kind not in BLOCKS:
                raise ValueError(f"tensor {name[:60]!r} is of kind {kind}, which is not read")
            _, block, width = BLOCKS[kind]
            if not shape or 0 in shape or shape[-1] % block:
                raise ValueError(f"tensor {name[:60]!r} has a shape that its kind cannot have")
            size = math.prod(shape) // block * width
            found.append(Stored(name, shape, kind, begin + offset, size))
        end = 0
        for each in sorted(found, key=lambda tensor: tensor.start):
            if each.start < end or each.start + each.size > self.size:
                raise ValueError(f"tensor {each.name[:60]!r} does not lie in it, or over another")
            end = each.start + each.size
        if len({each.name for each in found}) != len(found):
            raise ValueError("two tensors have one name")
        return tuple(found)
