"""Results as self-describing files: tidy tables, NumPy arrays, JSON, pages with figures.

Every file states model, revision, head, query position, skip, run and date.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, Template

from poskernel_core import __version__
from poskernel_core.analyses.definitions import errors_of
from poskernel_core.analyses.views import finding_of
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import BESIDE, NPZ, TOKENS, Result
from poskernel_core.common.rounding import counted
from poskernel_core.models.gguf import quantisation_note

Record = dict[str, Any]

PACKAGE = "PosKernel"
FOLDER = files(__name__.rpartition(".")[0])
COLUMN_NAMES = {"query": "n"}
"""Names of axes in tables, where these differ from the names in results."""

FIXED = ("model", "model_title", "layer", "head", "n")
"""What every row of a table says of its result, if that is known."""

RUN_FIELDS = (
    "model_fingerprint",
    "corpus_fingerprint",
    "corpus",
    "corpus_item",
    "context",
    "windows_asked",
    "start_token",
    "seed",
    "dtype",
    "pattern_windows",
)
"""The provenance that identifies a run."""


def template(name: str) -> Template:
    """Return the Jinja template in a file of this folder; HTML is escaped."""
    escape = name.endswith(".html")
    environment = Environment(autoescape=escape, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {}  # without it, fields are sorted
    environment.globals |= {"version": __version__, "head_name": head_name}
    return environment.from_string(FOLDER.joinpath(name).read_text("utf-8"))


TEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_"}
    | {
        "{": r"\textbraceleft{}",
        "}": r"\textbraceright{}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)
"""How TeX writes its special characters; a brace of their own would unbalance an entry."""


def identity(result: Result) -> dict[str, Any]:
    """Return the identity of a result, as far as known: model, head, position, run and date."""
    run, params = result.provenance, result.params
    at = dict(result.chosen)
    cell = re.fullmatch(r"[Ll](\d+)[Hh](\d+)", str(params.get("head", "")))
    if cell:
        at = {"layer": int(cell[1]), "head": int(cell[2])} | at
    if "query" in params and not any("query" in axes for axes in result.axes.values()):
        at = {"query": params["query"]} | at
    compared = result.axes.get("heads") == ("pin",)
    known = {
        "model": run.get("model"),
        "model_title": result.model_title or None,
        "revision": (run.get("revision") or "main") if run else None,
        "fingerprint": str(run.get("model_fingerprint", ""))[:12] or None,
        "question": result.analysis,
        "heads": ", ".join(result.words("heads")) if compared else None,
        **{COLUMN_NAMES.get(axis, axis): place for axis, place in at.items()},
        "skip": params.get("skip"),
        "corpus": run.get("corpus"),
        "windows": run.get("windows"),
        "context": run.get("context"),
        "start token": typed_start(result) or run.get("start_token"),
        "seed": run.get("seed"),
        "precision": run.get("dtype"),
        "weights": quantisation_note(str(run.get("quantisation", ""))) or None,
        "run": _digest(result),
        "date": run.get("date"),
    }
    return {name: value for name, value in known.items() if value is not None}


def _titled(result: Result) -> dict[str, Any]:
    """Return the identity for readers: the model is called by its title."""
    about = identity(result)
    title = about.pop("model_title", None)
    return about | ({"model": title} if title else {})


def typed_start(result: Result) -> str:
    """Return words for a start token that was typed in the text as well; else empty."""
    text, tokens = str(result.params.get("text") or ""), result.texts.get(TOKENS.name)
    if tokens is None or not tokens.size or not result.provenance.get("start_token"):
        return ""
    return "once, typed as well" if text.startswith(str(tokens[0])) else ""


def _about(result: Result) -> dict[str, Any]:
    about = {"identity": identity(result), "error_counts": errors_of(result)}
    return about | ({"finding": said} if (said := finding_of(result)) else {})


def _digest(result: Result) -> str:
    run = {name: result.provenance.get(name) for name in RUN_FIELDS}
    request = json.dumps([result.analysis, result.params, run], sort_keys=True, default=str)
    return hashlib.sha256(request.encode()).hexdigest()[:12]


def _head(about: dict[str, Any]) -> str:
    if "layer" in about and "head" in about:
        return head_name(about["layer"], about["head"])
    return f"L{about['layer']}" if "layer" in about else about.get("heads", "")


def head_of(result: Result) -> str:
    """Return the name of the head that a result is about; empty if it is about several."""
    about = identity(result)
    return head_name(about["layer"], about["head"]) if {"layer", "head"} <= about.keys() else ""


def _places(about: dict[str, Any]) -> list[str]:
    return [*filter(None, [_head(about), f"n{about['n']}" if "n" in about else ""])]


def file_stem(result: Result, name: str) -> str:
    """Return a file name without extension, such as ``demo-gpt2-L2H6-n400-kernel-curve``.

    It names model, head, query position, question, and the figure's ``name`` if that is another.
    """
    about = identity(result)
    model = re.sub(r"[^\w.-]+", "_", str(about.get("model", PACKAGE))).strip("_.")
    places = [
        "-".join(re.findall(r"\bL\d+H\d+", part)) if part == about.get("heads") else part
        for part in _places(about)
    ]
    return "-".join([model, *places, *dict.fromkeys((result.analysis, name))])


def caption(result: Result) -> str:
    """Return one line with a result's identity and origin."""
    about = _titled(result)
    weights, apart = about.pop("weights", ""), ("layer", "head", "heads")
    details = [f"{name} {value}" for name, value in about.items() if name not in apart]
    line = ", ".join(filter(None, [_head(about), *details, weights]))
    return f"{line}; {PACKAGE} {__version__}"


def signature(result: Result) -> str:
    """Return what a result is of in one line: model, head, position, run and version."""
    about = _titled(result)
    revision = "" if about.get("revision") in (None, "main") else f"revision {about['revision']}"
    place = f"n = {about['n']}" if "n" in about else ""
    run = [f"corpus {about['corpus']}"] if "corpus" in about else []
    if "windows" in about:
        run += [f"{counted(about['windows'], 'window')} of {counted(about['context'], 'token')}"]
    parts = [about.get("model"), revision, _head(about), place, *run, f"run {about['run']}"]
    return f"{', '.join(filter(None, parts))}; {PACKAGE} {__version__}"


def caption_and_errors(result: Result) -> str:
    """Return the caption, and what the result's errors count, if it has any."""
    return ". ".join(filter(None, [caption(result), errors_of(result)]))


def citation(result: Result, title: str) -> str:
    """Return a citation of a figure as plain text."""
    about = _titled(result)
    places = ", ".join(_places(about))
    of = f"{about.get('model', '')}, revision {about.get('revision', 'main')}"
    return (
        f"{PACKAGE} {__version__}: {title}. {of}{', ' if places else ''}{places}, "
        f"run {about['run']}, {about.get('date', 'no date')}."
        + (f" {about['weights']}." if "weights" in about else "")
    )


def bibtex(result: Result, title: str) -> str:
    """Return a citation of a figure as an entry for BibTeX."""
    about = _titled(result)
    date = str(about.get("date", ""))
    note = f"revision {about.get('revision', 'main')}, run {about['run']}, {date[:10]}"
    fields = {
        "title": f"{title}, {', '.join([str(about.get('model', '')), *_places(about)])}",
        "author": f"{PACKAGE} contributors",
        "year": date[:4],
        "version": __version__,
        "note": "; ".join(filter(None, [note, about.get("weights")])),
    }
    fields = {name: f"{{{value.translate(TEX)}}}" for name, value in fields.items()}
    fields["author"] = f"{{{fields['author']}}}"  # one name, not a first and a last one
    lines = ",\n".join(f"  {name} = {value}" for name, value in fields.items())
    return f"@software{{poskernel-{about['run']},\n{lines}\n}}"


def chart_config(filename: str) -> dict[str, Any]:
    """Return Plotly's ``config`` of every chart: image export, no logo, no uploads."""
    return {
        "displaylogo": False,
        "responsive": True,
        "showSendToCloud": False,
        "toImageButtonOptions": {"format": "svg", "scale": 3, "filename": filename},
    }


def to_json(result: Result) -> str:
    """Return all values with errors and intervals, the finding and the whole provenance as JSON."""
    return json.dumps({**result.as_json(), **_about(result)})


def stage_json(result: Result, windows: int) -> str:
    """Return an unfinished result as one line of JSON; ``windows``: how many it will be of."""
    fields = result.as_json()
    stage = {name: fields[name] for name in ("values", "lows", "highs", "errors")}
    return json.dumps({"windows": result.provenance["windows"], "of": windows} | stage)


def to_npz(result: Result) -> bytes:
    """Return a result as .npz: arrays with errors and intervals, and a JSON description."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**result.values, **result.coordinates}
    for part, end in NPZ.items():
        arrays |= {f"{name}_{end}": array for name, array in getattr(result, part).items()}
    texts = {
        "about": {**result.provenance, "params": result.params},
        **_about(result),
        "layout": {"axes": result.axes, "units": result.units, "labels": result.labels},
        "texts": {name: array.tolist() for name, array in result.texts.items()},
    }
    arrays |= {name: np.array(json.dumps(text)) for name, text in texts.items()}
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def to_csv(result: Result) -> str:
    """Return a result as a tidy table: one row per observation, one column per axis and value.

    Comment lines at the top state the result's identity and its scalar values; pandas reads the
    rest with ``comment="#"``. Values with different axes are in separate rows, with the other
    columns empty; so is a number that is not defined, such as that of a masked key.
    """
    text = io.StringIO()
    for name, value in _scalars(result):
        text.write(f"# {name}: {value}\n")
    rows = list(_rows(result))
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        writer = csv.DictWriter(text, columns, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: None if cell != cell else cell for name, cell in row.items()} for row in rows
        )
    return text.getvalue()


def to_frame(result: Result) -> Any:
    """Return a result as a pandas data frame: the table of :func:`to_csv`.

    ``attrs`` holds the result's identity and its scalar values.
    """
    import pandas as pd

    frame = pd.DataFrame(list(_rows(result)))
    places = {COLUMN_NAMES.get(a, a) for axes in result.axes.values() for a in axes}
    for column in places & {*frame.select_dtypes("float")}:  # some rows have none
        if (frame[column].dropna() % 1 == 0).all():
            frame[column] = frame[column].astype("Int64")
    frame.attrs = dict(_scalars(result))
    return frame


def to_xarray(result: Result) -> Any:
    """Return a result as an xarray data set: values and texts with coordinates and units.

    What stands beside a value is named as in .npz files: ``etc_low``, ``etc_error``. ``attrs`` are
    those of :func:`to_frame`.

    Raises:
        BadRequest: xarray is not installed.
    """
    try:
        import xarray
    except ImportError:
        raise BadRequest("Data sets need xarray, which is missing: pip install xarray.") from None
    arrays = {name: (name, array) for name, array in (result.values | result.texts).items()}
    for part, end in NPZ.items():
        arrays |= {f"{n}_{end}": (n, array) for n, array in getattr(result, part).items()}
    data = {
        called: (result.axes[name], array, {"units": result.units[name]})
        for called, (name, array) in arrays.items()
    }
    along = {axis: (axis, places) for axis, places in result.coordinates.items()}
    return xarray.Dataset(data, along, dict(_scalars(result)))


def _scalars(result: Result) -> Iterator[tuple[str, str]]:
    for name, value in identity(result).items():
        yield name, " ".join(str(value).split())
    if errors := errors_of(result):
        yield "errors", errors
    for name in result.values:
        if not result.axes[name]:
            yield name, f"{result.text_of(name)} {result.units[name]}"
            for part, array in _beside(result, name):
                yield part, f"{float(array)} {result.units[name]}"


def _beside(result: Result, name: str) -> Iterator[tuple[str, np.ndarray]]:
    for part, called in BESIDE.items():
        if name in getattr(result, part):
            yield f"{name} {called}", getattr(result, part)[name]


def _rows(result: Result) -> Iterator[Record]:
    """Yield the observations, grouped by the axes of their values.

    Texts along some of these axes, in the same order, are further columns.
    """
    about = identity(result)
    fixed = {name: about[name] for name in FIXED if name in about}
    tables: dict[tuple[str, ...], list[str]] = {}
    for name in result.values:
        if axes := result.axes[name]:
            tables.setdefault(axes, []).append(name)
    for axes, names in tables.items():
        shape = result.values[names[0]].shape
        places = [
            result.coordinates.get(axis, np.arange(size))
            for axis, size in zip(axes, shape, strict=True)
        ]
        grids = np.meshgrid(*places, indexing="ij")
        columns = {COLUMN_NAMES.get(a, a): g.ravel() for a, g in zip(axes, grids, strict=True)}
        for name in names:
            value = result.values[name]
            if name in result.labels:
                value = np.array([*result.labels[name], ""], dtype=object).take(value)
            columns[f"{name} ({result.units[name]})"] = value.ravel()
            columns |= {part: array.ravel() for part, array in _beside(result, name)}
        for name, text in result.texts.items():
            if result.axes[name] and set(result.axes[name]) <= set(axes):
                new = [at for at, axis in enumerate(axes) if axis not in result.axes[name]]
                columns[name] = np.broadcast_to(np.expand_dims(text, new), shape).ravel()
        for row in zip(*(column.tolist() for column in columns.values()), strict=True):
            yield fixed | dict(zip(columns, row, strict=True))


def to_html(
    figures: Sequence[Any], result: Result, name: str, *, title: str = "", code: str = ""
) -> str:
    """Return a self-contained page: the finding, figures, a caption, code, and the embedded data.

    Plotly itself is embedded once. Files saved from the figures have the ``name``; so has the
    heading without a ``title``. ``code`` is the cell that goes on from the figure.
    """
    config, about = chart_config(file_stem(result, name)), _titled(result)
    places = [_head(about), f"n = {about['n']}" if "n" in about else ""]
    whose = ", ".join([str(about.get("model", PACKAGE)), *filter(None, places)])
    drawn = [
        figure.to_html(include_plotlyjs=not place, full_html=False, config=config, auto_play=False)
        for place, figure in enumerate(figures)
    ]
    return template("page.html").render(
        title=f"{whose}: {title or name}",
        caption=caption_and_errors(result),
        finding=finding_of(result),
        figures=drawn,
        code=code,
        about={**result.as_json()["run"], **_about(result)},
    )
