"""What the caller has written of a model (functions, classes, hooks), told by code and numbers.

A function of a library is told by its name. One of the caller's is told by its code as well, and by
the numbers, words and tensors that it reads: of its closure, its defaults, its globals, its object.
"""

import functools
import hashlib
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

LIBRARIES = ("transformers.", "accelerate.", "peft.", "transformer_lens.", "torch.")
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, functools.partial)
PIECE = 2**22
"""Numbers of a tensor that are copied to the processor at a time."""


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of another object that is called."""
    while isinstance(function, functools.partial):
        function = function.func
    plain = function if hasattr(function, "__qualname__") else type(function)
    return f"{plain.__module__}.{plain.__qualname__}"


def told(function: Any) -> list[Any]:
    """Return what tells a function, or an object that is called, from others."""
    return _told(function, set())


def told_class(kind: type) -> list[Any]:
    """Return a class by its name, and the functions of it that no library has written."""
    own = [base for base in kind.__mro__ if not f"{base.__module__}.".startswith(LIBRARIES)]
    functions = [f for base in own[:-1] for f in vars(base).values() if isinstance(f, FunctionType)]
    return [f"{kind.__module__}.{kind.__qualname__}", *map(told, functions)]


def value_of(value: Any) -> str:
    """Return numbers, words, tensors and functions as text; of anything else, nothing."""
    return _value(value, set())


def digest_of(tensor: Tensor, dtype: torch.dtype | None = None) -> tuple[str, list[int], str]:
    """Return type, shape and SHA-256 of a tensor; with ``dtype``, as if it were of that type."""
    kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    total = hashlib.sha256()
    for piece in tensor.detach().reshape(-1).split(PIECE):
        total.update(piece.to(kind).cpu().contiguous().view(torch.uint8).numpy())
    return str(kind), list(tensor.shape), total.hexdigest()


def _told(function: Any, seen: set[int]) -> list[Any]:
    name = name_of(function)
    if id(function) in seen:
        return [name]
    seen.add(id(function))
    if isinstance(function, functools.partial):
        given = [*function.args, *sorted(function.keywords.items())]
        return [*_told(function.func, seen), *(_value(value, seen) for value in given)]
    if name.startswith(LIBRARIES):
        return [name]
    owner = getattr(function, "__self__", None if isinstance(function, FUNCTIONS) else function)
    held = {} if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {})
    code = function if isinstance(function, FUNCTIONS) else type(function).__call__
    code = getattr(code, "__func__", code)
    read = [*held.items()]
    if isinstance(code, FunctionType):
        cells = zip(code.__code__.co_freevars, code.__closure__ or (), strict=True)
        names = [n for n in _names(code.__code__) if n in code.__globals__]
        read += [(n, code.__globals__[n]) for n in names]
        read += [(n, cell.cell_contents) for n, cell in cells if _is_filled(cell)]
        read += [*enumerate(code.__defaults__ or ()), *(code.__kwdefaults__ or {}).items()]
        name += _code(code.__code__)
    return [name, *(f"{n}={text}" for n, value in read if (text := _value(value, seen)))]


def _value(value: Any, seen: set[int]) -> str:
    if isinstance(value, Tensor):
        return str(digest_of(value))
    return str(_told(value, seen)) if isinstance(value, FUNCTIONS) else _plain(value)


def _plain(value: Any) -> str:
    """Return numbers and words as text, also of a list or a dictionary of nothing else."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return repr(value)
    items = [*value.items()] if isinstance(value, dict) else value
    if not isinstance(items, list | tuple):
        return ""
    parts = [*map(_plain, items)]
    return str(parts) if parts and all(parts) else ""


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names(code: CodeType) -> list[str]:
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return [*code.co_names, *(name for part in inner for name in _names(part))]


def _code(code: CodeType) -> str:
    parts = [_code(p) if isinstance(p, CodeType) else _constant(p) for p in code.co_consts]
    text = f"{code.co_code.hex()} {parts} {code.co_names} {code.co_varnames}"
    return hashlib.sha256(text.encode()).hexdigest()


def _constant(value: Any) -> str:
    """Return a constant as text; the words of a set have another order in every process."""
    return str(sorted(map(_constant, value))) if isinstance(value, frozenset) else repr(value)
