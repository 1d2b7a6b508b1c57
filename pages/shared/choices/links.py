"""Links of earlier versions, under the names of today."""

import re
from collections.abc import Mapping

from poskernel_core.common.heads import layer_of
from poskernel_core.common.renamed import MODELS

KEYS = {  # of addresses
    "cell": "head", "texts": "windows", "contexts": "firstwindows", "silenced": "ablated",
    "silenced0": "ablated0", "silencedhow": "ablation", "flatten": "equalise",
    "cause": "comparenorms", "copies": "duplicates", "fewest": "mincount", "beside": "compared",
}  # fmt: skip
PAGE_KEYS = {  # of addresses of one page, where two pages meant different things
    "over_training": {"against": "axis"},
    "positional_kernels": {"text": "typed"},
    "previous_token": {"text": "typed"},
    "contextual_neurons": {"text": "typed"},
}
QUESTIONS = {
    "kernel-folds": "kernel-replicates", "head-distances": "compare-kernels",
    "heads-beside": "compare-heads", "score-shares": "score-variance",
    "norm-cause": "equalised-norms",
}  # fmt: skip
MEASURES = {
    "consistency over queries": "query variation", "keys in sight": "visible keys",
    "translation equivariance": "equivariance error", "fidelity": "distance to observed attention",
    "position's share of the scores": "score variance explained by position",
    "content's share of the scores": "score variance explained by content",
    "position in the keys": "key variance explained by position",
    "content in the keys": "key variance explained by content",
    "keys beyond the sum": "position-content interaction",
    "drift of content": "content similarity across positions",
    "spread of the denominator": "CV of the softmax denominator",
    "attention to far copies": "attention to far duplicates",
}  # fmt: skip
SHOWN: Mapping[str, Mapping[str, str]] = {  # values in addresses, by the current keys
    "ablation": {"output set to zero": "zero ablation",
                 "pattern made uniform": "uniform attention"},
    "change": {"switch heads off": "ablate heads"}, "method": QUESTIONS,
    "source": {"sampled texts": "sampled windows"}, "log": {"offset of local heads": "offset"},
    **{key: {"texts of the corpus": "windows of the corpus"} for key in ("prompts", "helixof")},
    **dict.fromkeys(("model", "second"), MODELS),
    **dict.fromkeys(("measure", "x", "y", "colour", "follow", "compared"), MEASURES),
}  # fmt: skip


def forwarded(link: dict[str, list[str]], page: str) -> dict[str, list[str]]:
    """Return a link to a page with renamed parameters, and its head in capitals."""
    parameters: dict[str, list[str]] = {}
    names = KEYS | PAGE_KEYS.get(page, {})
    for old, values in link.items():
        key = names.get(old, old)
        if key != old and key in link:  # the link has the parameter under its new name too
            continue
        parameters[key] = [SHOWN.get(key, {}).get(value, value) for value in values]
        if key == "head":
            parameters[key] = [value.upper() if layer_of(value) >= 0 else value for value in values]
        elif key == "pins":
            parameters[key] = [_forwarded_pins(value) for value in values]
    return parameters


def _forwarded_pins(pins: str) -> str:
    """Return pins with renamed settings and models."""
    pins = pins.replace(";texts=", ";windows=")
    return re.sub("(?<=@)[^@;,]+", lambda name: MODELS.get(name[0], name[0]), pins)
