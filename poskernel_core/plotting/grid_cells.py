"""What the browser draws as a grid of layers x heads."""

from typing import Any

from poskernel_core.common.heads import head_name
from poskernel_core.plotting.palette import NO_VALUE, ink_on


def grid_data(
    colours: list[list[str]],
    labels: list[list[str]],
    marks: list[list[str]],
    dimmed: list[list[bool]],
    columns: list[list[int]] | None,
    *,
    kernels: bool = False,
) -> dict[str, Any]:
    """Return what the browser draws: `rows` of cells in the order shown, and column `headers`.

    All cell lists are indexed [layer][head]: `colours` as '#rrggbb', `labels` for hover and screen
    readers, `marks` a small glyph or "", `dimmed` whether the cell is filtered out. `columns` is
    the order of each layer's heads. `kernels` are drawn in place of the marks.
    """
    heads = range(len(colours[0]))
    rows = []
    for layer, cells in enumerate(zip(colours, labels, marks, dimmed, strict=True)):
        drawn = [
            {
                "name": head_name(layer, head),
                "colour": "" if colour == NO_VALUE else colour,
                "label": f"{label} (filtered out)" if dim else label,
                "missing": colour == NO_VALUE,
                "mark": mark,
                "ink": ink_on(colour) if mark or kernels else "",
                "dimmed": dim,
            }
            for head, (colour, label, mark, dim) in enumerate(zip(*cells, strict=True))
        ]
        rows.append(drawn if columns is None else [drawn[head] for head in columns[layer]])
    headers = [f"H{head}" if columns is None else f"{head + 1}." for head in heads]
    corner = "" if columns is None else "rank"
    return {"rows": rows, "headers": headers, "corner": corner, "kernels": kernels}
