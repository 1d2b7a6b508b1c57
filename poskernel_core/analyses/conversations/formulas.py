"""The mathematics of attention by class of token, on NumPy arrays."""

import numpy as np
from jaxtyping import Float

QUERY_CLASSES = ("template", "user", "assistant", "first of a turn")
"""Classes of tokens, in the order of their codes."""
FIRST = "first key"
KEY_CLASSES = (*QUERY_CLASSES, FIRST)
"""The same for keys; the first key is a class of its own, because it may be a sink."""
TEMPLATE = 0
SAID = slice(1, None)


def shares(
    sums: Float[np.ndarray, "layer head query_class key_class"],
    visible: Float[np.ndarray, "layer query_class key_class"],
    queries: Float[np.ndarray, " query_class"],
) -> dict[str, np.ndarray]:
    """Return the mean attention by class, and that to the template.

    Args:
        sums: attention, summed over queries of a class and keys of a class.
        visible: visible keys of each class, each query's as a share of all it sees, summed alike.
        queries: number of queries of each class; a class without any gives NaN.
    """
    known = np.where(queries > 0, queries, np.nan)
    said = queries[SAID].sum() or np.nan
    return {
        "attention": sums / known[:, None],
        "visible_share": visible / known[:, None],
        "template_share": sums[..., SAID, TEMPLATE].sum(axis=-1) / said,
        "template_visible_share": visible[..., SAID, TEMPLATE].sum(axis=-1) / said,
    }
