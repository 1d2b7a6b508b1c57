"""Attention patterns of the reader's own, drawn in a notebook and in an HTML file.

The scripts are those that draw the dashboard's page Text. Nothing is loaded from elsewhere.
"""

import base64
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
from jaxtyping import Float

from poskernel_core.analyses.own_text.figures import PERCENTILE, scale_top, token_text
from poskernel_core.common.atomic_write import check_target, write_file
from poskernel_core.common.errors import BadRequest, TooLarge
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import brief
from poskernel_core.export.files import FOLDER, template

BROWSER: Final = FOLDER / "browser"
PARTS: Final = ("patterns", "tokens")
"""What is drawn: all heads, and one head with its tokens."""

MAX_VALUES: Final = 2**24
"""Numbers in one picture: 64 MB in the browser."""

COLUMNS: Final = 12
AXES: Final = "[query, key], [head, query, key] or [layer, head, query, key]"
SPACES: Final = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})
"""How tokenizers write spaces and line breaks in the names of their tokens."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """Patterns with their tokens; a notebook draws them if they end a cell.

    Attributes:
        parts: the numbers ``[head, query, key]`` of each part, in 32 bits; most have one part.
        tokens: a string per position.
        labels: the name of each head.
        layers: how many layers the heads are of; None if they are given without layers.
    """

    parts: Mapping[str, Float[np.ndarray, "head query key"]]
    tokens: Sequence[str]
    labels: Sequence[str]
    layers: int | None = None

    def html(self, *, whole: bool = False) -> str:
        """Return an HTML fragment, or a ``whole`` page, that loads nothing."""
        scripts = [BROWSER.joinpath("parts.js").read_text("utf-8"), *map(scoped, PARTS)]
        return template("matrix.html").render(
            whole=whole,
            name=f"poskernel-{uuid4().hex}",
            title=repr(self),
            script="\n".join([*scripts, BROWSER.joinpath("matrix.js").read_text("utf-8")]),
            data=self._packed() | {"styles": _styles()},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page that any browser opens from the disk, without a network.

        Raises:
            BadRequest: the file cannot be written.
        """
        check_target(Path(path))
        write_file(Path(path), self.html(whole=True))

    def _packed(self) -> dict[str, Any]:
        numbers = np.stack([*self.parts.values()])
        count = len(self.labels)
        rows = self.layers or -(-count // COLUMNS)
        future = numbers[..., *np.triu_indices(numbers.shape[-1], 1)]
        causal = not (future[np.isfinite(future)] != 0).any()
        seen = numbers[..., *np.tril_indices(numbers.shape[-1])] if causal else numbers
        finite = seen[np.isfinite(seen)]
        signed = bool((finite < 0).any())
        is_share = not signed and bool((finite <= 1.01).all())
        tops = [_top(seen[:, head], is_share) for head in range(count)]
        planes = numbers.astype("<f4", order="C").view(np.uint8).reshape(-1, 4).T
        return {
            "numbers": base64.b64encode(zlib.compress(planes.tobytes(), 1)).decode(),
            "parts": [*self.parts],
            "layers": rows,
            "heads": -(-count // rows),
            "names": None if self.layers else [*self.labels],
            "labels": [*self.labels],
            "tokens": [token_text(token.translate(SPACES)) for token in self.tokens],
            "top": _top(finite, is_share),
            "tops": tops,
            "signed": signed,
            "causal": causal,
        } | ({} if is_share else {"unit": "value"})

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        """Return what is shown, and its size."""
        count, names = len(self.labels), [*self.parts]
        heads = "one head" if count == 1 else f"{count} heads"
        suffix = "" if len(names) == 1 else f" ({', '.join(names)})"
        return f"Attention of {heads} on {len(self.tokens)} tokens{suffix}."


def matrix(pattern: Any, tokens: Sequence[str], *, names: Sequence[str] | None = None) -> Matrix:
    """Return patterns as a picture for notebooks: all heads small, one head large with its tokens.

    It shows every number exactly (in 32 bits) under the pointer, the row of a query or the column
    of a key over the text, and lines between the tokens. ``.save("patterns.html")`` writes a page.

    Args:
        pattern: numbers ``[query, key]``, ``[head, query, key]`` or ``[layer, head, query, key]``
            (torch tensor, NumPy array, frame, or lists of them): shares of attention, scores, or
            differences, in any unit. Numbers below 0 have a colour of their own. Minus infinity is
            a masked pair, as is what a masked array masks. The axis of a batch of one text, in
            front of the heads, is dropped. Parts of a sum,
            ``{"sum": s, "position": a, "content": c}``, are shown one at a time.
        tokens: a string per position; queries and keys are the same tokens.
        names: a name per head (default: ``H0``, or ``L0H0`` with layers).

    Raises:
        BadRequest: another shape, another number of tokens or names, or NaN or infinite numbers.
        TooLarge: more numbers than a browser draws.
    """
    given = pattern if isinstance(pattern, Mapping) else {"pattern": pattern}
    parts = {str(name): _numbers(part, str(name)) for name, part in given.items()}
    shapes = {name: array.shape for name, array in parts.items()}
    if len({*shapes.values()}) != 1:
        sizes = ", ".join(f"{name!r} {[*shape]}" for name, shape in shapes.items())
        raise BadRequest(f"Expected parts of one shape, got {sizes or 'an empty dictionary'}.")
    shape = next(iter(shapes.values()))
    _check_shape(shape, len(parts))
    words = _texts(tokens, "tokens", shape[-1], "key", "give tokenizer.convert_ids_to_tokens(ids)")
    layers = shape[0] if len(shape) == 4 else None
    flat = {name: array.reshape(-1, *shape[-2:]) for name, array in parts.items()}
    for name, numbers in flat.items():
        _check_finite(numbers, name if len(parts) > 1 else "pattern")
    count = len(next(iter(flat.values())))
    labels = (
        [head_name(layer, head) for layer in range(layers) for head in range(count // layers)]
        if layers
        else [f"H{head}" for head in range(count)]
    )
    if names is not None:
        labels = _texts(names, "names", count, "head", 'such as ["L3H5", "L4H1"]')
    return Matrix(flat, words, labels, layers)


def scoped(name: str) -> str:
    """Return the script of a part, as a function in a scope of its own."""
    text = BROWSER.joinpath(f"{name}.js").read_text("utf-8")
    return f"const {name} = (() => {{\n{text}return {name};\n}})();"


def _styles() -> dict[str, str]:
    shared, *own = (
        BROWSER.joinpath(f"{name}.css").read_text("utf-8") for name in ("parts", "matrix", *PARTS)
    )
    return {name: shared + sheet for name, sheet in zip(("matrix", *PARTS), own, strict=True)}


def _top(values: np.ndarray, is_share: bool) -> float:
    """Return the number of full colour: a high percentile, because a few may be far above it."""
    there = np.abs(values[np.isfinite(values)])
    if is_share:
        return scale_top(there)
    most = float(np.percentile(there, PERCENTILE) or there.max()) if there.size else 0.0
    return float(f"{most:.2g}") or 1.0


def _numbers(given: Any, name: str) -> np.ndarray:
    """Return a tensor, an array or lists of them as an array of 32 bits."""
    try:
        array = np.asarray(_plain(given))
        if array.dtype.kind == "O" and all(isinstance(item, Real) for item in array.flat):
            array = array.astype(float)
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise TypeError(f"{array.dtype} {[*array.shape]}")
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadRequest(f"Expected numbers {AXES} as {name!r}, got {brief(given)}.") from error
    if array.ndim == 5 and array.shape[1] == 1:  # what models return: a batch in each layer
        array = array[:, 0]
    return array[0] if array.ndim == 4 and len(array) == 1 else array


def _plain(given: Any) -> Any:
    if hasattr(given, "detach"):
        there = given.detach().cpu().to_dense().resolve_neg()
        return (there.float() if there.is_floating_point() else there).numpy()
    if isinstance(given, np.ma.MaskedArray) and given.dtype.kind in "fiub":
        return np.where(np.ma.getmaskarray(given), -np.inf, np.ma.getdata(given))
    if isinstance(given, Sequence) and not isinstance(given, str):
        nested = len(given) and (
            hasattr(given[0], "detach") or isinstance(given[0], (list, tuple, np.ndarray))
        )
        return [_plain(item) for item in given] if nested else given
    return given


def _check_shape(shape: tuple[int, ...], parts: int) -> None:
    got = " × ".join(map(str, shape)) or "one number"
    if len(shape) == 5:
        raise BadRequest(f"Expected {AXES}, got {got}: choose one text, as in pattern[:, 0].")
    if not 2 <= len(shape) <= 4:
        raise BadRequest(f"Expected {AXES}, got {got}.")
    if 0 in shape:
        raise BadRequest(f"Expected at least one head and one token, got {got}.")
    if shape[-2] != shape[-1]:
        raise BadRequest(
            f"Expected as many queries as keys, got {shape[-2]} and {shape[-1]}: give the rows of "
            "all tokens, with minus infinity where there is none."
        )
    if parts * int(np.prod(shape)) > MAX_VALUES:
        times = f", in {parts} parts" if parts > 1 else ""
        raise TooLarge(
            f"Expected at most {MAX_VALUES:,} numbers, got {got}{times}: choose fewer heads, as in "
            "pattern[:8], or fewer tokens, as in pattern[..., :256, :256]."
        )


def _check_finite(numbers: np.ndarray, name: str) -> None:
    wrong = np.isnan(numbers) | np.isposinf(numbers)
    if wrong.any():
        head, query, key = np.argwhere(wrong)[0].tolist()
        raise BadRequest(
            f"Expected finite numbers (or minus infinity for masked pairs), got "
            f"{numbers[head, query, key]} in {wrong.sum():,} of {wrong.size:,} places of {name!r}, "
            f"first at head {head}, query {query}, key {key}."
        )


def _texts(given: Any, what: str, count: int, axis: str, like: str) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise BadRequest(f"Expected a list of strings as {what!r}, got {brief(given)}: {like}.")
    for item in given:
        if not isinstance(item, str):
            raise BadRequest(f"Expected strings as {what!r}, got {brief(item)}: {like}.")
    if len(given) != count:
        raise BadRequest(
            f"Expected as many {what} as there are {axis}s, got {len(given)} {what} and "
            f"{count} {axis}s."
        )
    return [str(text) for text in given]
