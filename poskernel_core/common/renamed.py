"""Renamed public names: errors for old names give the new one, and old links still work."""

from collections.abc import Collection, Mapping

QUESTIONS = {
    "kernel-folds": "kernel-replicates", "head-distances": "compare-kernels",
    "heads-beside": "compare-heads", "score-shares": "score-variance",
    "norm-cause": "equalised-norms",
}  # fmt: skip
PARAMETERS = {
    "cell": "head", "silence": "ablate", "silence_what": "ablation", "flatten": "equalise_norms",
    "doubling": "repeat_every", "loss_texts": "loss_windows", "fewest": "min_count",
    "listed": "top_k", "places": "n_positions", "own": "own_texts", "copies": "duplicates",
    "without_positions": "no_positions", "samples": "queries_per_position", "texts": "windows",
    "pattern_texts": "pattern_windows",
}  # fmt: skip
"""Parameters of questions, and fields of a run."""
OPTIONS = {f"--{x}".replace("_", "-"): f"--{y}".replace("_", "-") for x, y in PARAMETERS.items()}
CHOICES = {"ablation": {"output": "zero", "pattern": "uniform"}, "change": {"silence": "ablate"}}
VALUES = {
    "consistency": "query_variation", "equivariance": "equivariance_error",
    "fidelity": "attention_distance", "distance": "attention_distance", "visible": "visible_keys",
    "observed_distance": "equivariant_attention_distance", "position": "position_share",
    "content": "content_share", "covariance": "covariance_share", "spread": "denominator_cv",
    "predicted_spread": "predicted_cv", "copy_attention": "duplicate_attention",
    "near": "near_duplicates", "far": "far_duplicates", "rest_share": "interaction_share",
    "content_cosine": "content_similarity", "without": "replicate", "apart": "z_score",
    "runs": "conditions",
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
MODELS = {"demo-gpt2-smooth": "demo-gpt2"}
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
SHOWN: Mapping[str, Mapping[str, str]] = {  # values in addresses, by the current keys
    "ablation": {"output set to zero": "zero ablation",
                 "pattern made uniform": "uniform attention"},
    "change": {"switch heads off": "ablate heads"}, "method": QUESTIONS,
    "source": {"sampled texts": "sampled windows"}, "log": {"offset of local heads": "offset"},
    **{key: {"texts of the corpus": "windows of the corpus"} for key in ("prompts", "helixof")},
    **dict.fromkeys(("model", "second"), MODELS),
    **dict.fromkeys(("measure", "x", "y", "colour", "follow", "compared"), MEASURES),
}  # fmt: skip
VARIABLES = {
    f"POSKERNEL_{old}": f"POSKERNEL_MAX_{new}" for old, new in {
        "MOST_OPEN": "JOBS", "MOST_OPEN_IN_ALL": "JOBS_TOTAL", "MOST_WINDOWS": "WINDOWS",
        "MOST_TOKENS": "TOKENS", "MOST_SAMPLES": "SAMPLES", "MOST_CHARACTERS": "CHARACTERS",
        "MOST_TEXTS": "TEXTS", "TEXTS_MB": "TEXTS_MB", "TABLES_MB": "TABLES_MB",
        "SESSIONS": "SESSIONS", "SESSIONS_EACH": "SESSIONS_EACH",
        "REQUESTS_EACH": "REQUESTS_PER_MINUTE",
    }.items()
}  # fmt: skip


def told(name: object, names: Mapping[str, str], known: Collection[str] | None = None) -> str:
    """Return a sentence that gives an old name's new name; empty if the latter is not ``known``."""
    new = names.get(name) if isinstance(name, str) else None
    return f"{name!r} is called {new!r} now." if new and (known is None or new in known) else ""
