"""Text output of the command line: the summary of a result, and the ledger."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from poskernel_core.analyses.definitions import errors_of
from poskernel_core.analyses.views import finding_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed, counted, rounded, texts_of
from poskernel_core.export.files import typed_start
from poskernel_core.ledger.compare import Checked, brief, near_text
from poskernel_core.models.gguf import quantisation_note

MAX_NUMBERS = 200


def summary(result: Result) -> str:
    """Return a result as text: provenance, finding, sentences, and every value.

    Long arrays are shortened. Of verdicts, the sentences are all.
    """
    run = result.provenance
    lines = [
        f"{result.analysis} of {run['model']} on {counted(run['windows'], 'window')} of "
        f"{counted(run['context'], 'token')} of {run['corpus']!r}, "
        f"{run['dtype']} on {run['device']}, {run['date']}",
        f"parameters: { {name: _short(value) for name, value in result.params.items()} }",
        *([f"start token: {start}"] if (start := typed_start(result)) else []),
        *filter(None, [quantisation_note(run.get("quantisation", "")), errors_of(result)]),
        *([f"\n{said}"] if (said := finding_of(result)) else []),
    ]
    for name, texts in result.texts.items():
        if result.units[name] == "sentence" and any(sentences := texts.ravel().tolist()):
            lines += [f"\n{name} [{' x '.join(result.axes[name])}]", *filter(None, sentences)]
    if "verdict" in result.texts:
        return "\n".join([*lines, "\nthe numbers behind them: --json"])
    for name, texts in result.texts.items():
        if result.units[name] == "name" and texts.ndim == 1:
            lines.append(f"{name}: {'; '.join(filter(None, texts))}")
    for axis, places in result.coordinates.items():
        lines.append(f"{axis}: {_text(result, '', places)}")
    for name, array in result.values.items():
        axes = " x ".join(result.axes[name]) or "one number"
        lines.append(f"\n{name} [{axes}] in {result.units[name]}")
        error = result.errors.get(name, np.array(np.nan))
        if not np.isfinite(error).any() and (name not in result.lows or array.size > MAX_NUMBERS):
            lines.append(_text(result, name, array))
        elif array.size > MAX_NUMBERS:
            lines += [_text(result, name, array), f"standard error\n{_text(result, '', error)}"]
        else:
            lines.append(_rounded(texts_of(result, name)))
            if not array.ndim and name in result.lows and name in result.errors:
                low, high = (float(part[name]) for part in (result.lows, result.highs))
                lines[-1] += f" (95 %: {rounded(low)} to {rounded(high)})"
    for name, texts in result.texts.items():
        if result.units[name] not in ("name", "sentence") and texts.size <= MAX_NUMBERS:
            lines.append(f"\n{name} [{' x '.join(result.axes[name])}]")
            rows = texts.reshape(-1, 1) if result.units[name] == "text" else np.atleast_2d(texts)
            lines += [" ".join(map(repr, row)) for row in rows.tolist()]
    return "\n".join(lines)


def _short(value: object) -> object:
    """Return a parameter, or the beginning of a long text."""
    long = isinstance(value, str) and len(value) > MAX_NUMBERS
    return f"{str(value)[:MAX_NUMBERS]}…" if long else value


def _rounded(texts: np.ndarray) -> str:
    if texts.ndim == 0:
        return str(texts)
    with np.printoptions(threshold=MAX_NUMBERS, linewidth=100, formatter={"all": str}):
        return str(texts)


def ledger_text(model: str, lines: Sequence[Checked], known: Sequence[str]) -> str:
    """Return the reproduction ledger as text: every figure, then the counts of the verdicts."""
    if not lines:
        some = ", ".join(known) or "no model"
        return f"No figures were published for {model!r}; there are some for {some}."
    entries = []
    for line in lines:
        figure = line.figure
        parts = [f"{line.verdict:13} {figure.id}: {figure.figure}", figure.source]
        if line.verdict == "not computed":
            parts.append(line.why)
        else:
            numbers = brief(figure.published), brief(line.ours, line.errors)
            parts.append("published {}, ours {}".format(*numbers))
            parts += filter(None, [near_text(line)])
        entries.append(f"\n{'':13} ".join(parts))
    counts = Counter(line.verdict for line in lines)
    total = ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
    return "\n".join([*entries, f"\n{counted(len(lines), 'published figure')}: {total}."])


def _text(result: Result, name: str, array: np.ndarray) -> str:
    if name in result.labels:
        words = np.array([*result.labels[name], "none"], dtype=object)
        array = np.asarray(words.take(array), dtype=str)
    elif array.size > MAX_NUMBERS:
        finite = array[np.isfinite(array)]
        span = f"{_plain(finite.min())} to {_plain(finite.max())}" if finite.size else "no number"
        shape = " x ".join(map(str, array.shape))
        fewer = "" if "head" in result.chosen else ", fewer with --head"
        return f"{shape} numbers, {span}; all of them with --json or --npz{fewer}"
    if array.ndim == 0 and array.dtype.kind == "f":
        return _plain(array)
    formats: Any = {"float_kind": _plain}
    with np.printoptions(threshold=MAX_NUMBERS, linewidth=100, formatter=formats):
        return as_printed(str(array)) if array.dtype.kind == "i" else str(array)


def _plain(number: Any) -> str:
    """Return a number without an error."""
    return as_printed(f"{float(number):.3g}")
