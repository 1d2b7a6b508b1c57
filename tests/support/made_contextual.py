"""Made results of the analyses of contextual heads, neurons and additivity; sizes are unequal."""

import numpy as np

from poskernel_core.analyses.contextual_heads.behaviour import BEHAVIOURS
from poskernel_core.common.result import Result
from tests.support.made_results import result

LAYERS, HEADS, QUERIES, TEXTS, TOKENS, NEURONS = 3, 5, 7, 11, 97, 31
HOSTILE = "<b>\n"
VARIANTS = [f"{kernel} kernel, scale {scale}"
            for kernel in ("common", "own") for scale in ("of all", "by position")]  # fmt: skip


def heads(layers: int = LAYERS, per_layer: int = HEADS) -> Result:
    """A result of contextual heads, every group among them."""
    cells = np.arange(layers * per_layer).reshape(layers, per_layer)
    copies = dict.fromkeys(("duplicate_attention", "baseline"), (*cells.shape, QUERIES))
    return result(
        "contextual-heads",
        dict.fromkeys(("etc", "denominator_cv", "predicted_cv"), cells.shape) | copies,
        {"group": cells % len(BEHAVIOURS)},
        labels={"group": BEHAVIOURS},
        coordinates={"distance": 2 ** np.arange(1, QUERIES + 1)},
    )


def denominators(own: int = 2) -> Result:
    """A result of one head's denominators; the last own text ends early."""
    names = ("etc", "mean", "denominator_cv", "predicted_cv")
    shapes = dict.fromkeys(names, (QUERIES,)) | {"denominator": (TEXTS, QUERIES)}
    found = result(
        "denominators",
        shapes | ({"own_denominator": (own, QUERIES)} if own else {}),
        params={"head": "L0H4"},
        coordinates={"query": np.arange(3, 3 + 10 * QUERIES, 10)},
        texts={"own_texts": [f"<i>text</i> {index}" for index in range(own)]},
    )
    if own:
        found.values["own_denominator"][-1, -2:] = np.nan
    return found


def weights(count: int = TOKENS) -> Result:
    """A result of the content weights of tokens, from about -3 to 3."""
    found = result("token-weights", {"log_weight": (count,)}, params={"head": "L0H4"})
    found.values["log_weight"][:] = np.random.default_rng(3).normal(size=count)
    return found


def distances(layers: int = LAYERS, per_layer: int = HEADS) -> Result:
    """A result of distances; heads 0 and 2, 1 and 4 are a group."""
    group = np.tile(np.resize([0, 1, 0, 2, 1], per_layer), (layers, 1))
    return result(
        "kernel-distances", {"distance": (layers, per_layer, per_layer)}, {"group": group}
    )


def neurons(count: int = NEURONS, words: tuple[str, ...] = (HOSTILE, " word", "%{x}")) -> Result:
    """A result of contextual neurons; words are told in turn."""
    per_neuron = ("drive", "drive_share", "r2", "sign_agreement", "fires")
    quality = ("bag_r2", "bag_centred_r2", "bag_cosine")
    ids = np.arange(count * 7).reshape(count, 7) % TOKENS
    spelt = [[words[token % len(words)] for token in row] for row in ids.tolist()]
    return result(
        "contextual-neurons",
        dict.fromkeys(per_neuron, (count,))
        | dict.fromkeys(quality, (len(VARIANTS), QUERIES))
        | {"kernel": (13,)},
        {"top": ids, "bottom": ids[:, ::-1]},
        coordinates={"query": np.arange(1, 1 + 5 * QUERIES, 5)},
        texts={
            "variants": VARIANTS, "heads": ["L0H0", "L0H2"],
            "top_words": spelt, "bottom_words": [row[::-1] for row in spelt],
        },
    )  # fmt: skip


def neuron(count: int = TOKENS, number: int = 4) -> Result:
    """A result of one neuron's tokens; the ends are listed."""
    listed = min(7, count)
    found = result(
        "neuron",
        dict.fromkeys(("top_value", "bottom_value"), (listed,))
        | dict.fromkeys(("related", "output_cosine"), (NEURONS,))
        | {"contribution": (count,)},
        params={"neuron": number},
        texts=dict.fromkeys(("top_words", "bottom_words"), [""] * listed),
    )
    values = found.values["contribution"]
    values[:] = np.random.default_rng(5).normal(size=count)
    found.values["related"][number] = 1.0
    order = np.argsort(values)
    for side, places in (("top", order[::-1][:listed]), ("bottom", order[:listed])):
        found.values[f"{side}_value"][:] = values[places]
        found.texts[f"{side}_words"][:] = [f"{HOSTILE}{place}" for place in places]
    return found


def trace(length: int = 17) -> Result:
    """A result of a neuron along a text; the start token contributes nothing."""
    names = ("true", "predicted", "bag", "position", "others", "direct", "contribution")
    found = result(
        "neuron-trace",
        dict.fromkeys(names, (length,)) | {"r2": ()},
        params={"neuron": 4, "text": "", "item": "<u>Genesis</u>", "window": 0},
        texts={"tokens": [f"{HOSTILE}{place}" for place in range(length)]},
    )
    found.values["contribution"][0] = np.nan
    return found


def additivity(layers: int = LAYERS, per_layer: int = HEADS) -> Result:
    """A result of the additivity of position and content; shares add up to 1."""
    names = ("position_share", "content_share", "interaction_share")
    found = result(
        "additivity",
        dict.fromkeys(names, (layers, per_layer))
        | {"content_similarity": (layers, per_layer, QUERIES)},
        coordinates={"shift": np.arange(0, 10 * QUERIES, 10)},
    )
    total = sum(found.values[name] for name in names)
    for name in names:
        found.values[name] /= total
    return found
