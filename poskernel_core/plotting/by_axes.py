"""Generic figure of any result, from the axes of its main value."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import set_height, set_title


def by_axes(result: Result, name: str = "") -> go.Figure:
    """Draw a value, by default the first, over its last axis, a curve for each of its other places.

    Standard errors are drawn if there are any. Layers without heads have no curves.
    """
    name = name or next(iter(result.values))
    value, axes = np.atleast_1d(result.values[name]), result.axes[name] or ("",)
    error = np.atleast_1d(result.errors.get(name, np.full(value.shape, np.nan)))
    gone = {int(layer) for layer in result.provenance.get("layers_without_heads", {})}
    rows = {
        _label(result, axes, place) or name: (value[place].astype(float), error[place])
        for place in np.ndindex(value.shape[:-1])
        if not ({"layer", "head"} <= set(axes) and place[axes.index("layer")] in gone)
    }
    spread = " ± 1 s.e." if name in result.errors else ""
    figure = curves(
        result.coordinates.get(axes[-1], np.arange(value.shape[-1])),
        rows,
        x_title=axes[-1],
        y_title=f"{name}{spread} ({result.units[name]})",
        where=f"{axes[-1]} %{{x}}",
    )
    return set_title(set_height(figure, 520), f"{name} of {result.model_title}")


def _label(result: Result, axes: tuple[str, ...], place: tuple[int, ...]) -> str:
    at = dict(zip(axes, place, strict=False))
    head = head_name(at.pop("layer"), at.pop("head")) if {"layer", "head"} <= at.keys() else ""
    return ", ".join([*filter(None, [head]), *(_place(result, *pair) for pair in at.items())])


def _place(result: Result, axis: str, index: int) -> str:
    named = [text for name, text in result.texts.items() if result.axes[name] == (axis,)]
    if named:
        return str(named[0][index])
    known = result.coordinates.get(axis)
    return f"{axis} {index if known is None else known[index]}"
