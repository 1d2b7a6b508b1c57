"""Convert results to files for HeadVis: one table of all heads, and a file for each head."""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from poskernel_core.analyses.headvis.spec import HeadVisMetrics
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result

DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Edges of the bins of distances that HeadVis draws."""

LEAST = 0.005
"""Smallest attention that the files contain."""

MAX_TOKENS = 50
DECIMALS = 4


def folder_of(metrics: Result) -> tuple[str, str, str]:
    """Return the folders of a model's tree: its name, ``headvis``, and the corpus' name."""
    run = metrics.provenance
    return _as_folder(run["model"]), "headvis", _as_folder(run["corpus"])


def tree(metrics: Result, examples: Result, measures: Result) -> Iterator[tuple[str, Any]]:
    """Yield the names and contents of the files, from three answers about the same run.

    Our ``measures`` become further metrics; kinds are left out.
    """
    declared = {value.name: value.meaning for value in HeadVisMetrics.values}
    columns = {name: metrics.values[name] for name in declared}
    described = {name: f"{meaning[0].upper()}{meaning[1:]}." for name, meaning in declared.items()}
    for place, title in enumerate(measures.words("measure")):
        if not any(measures.texts["kinds"][place]):
            name = _as_metric(title, described)
            columns[name] = measures.values["value"][place]
            described[name] = f"{title[0].upper()}{title[1:]} ({measures.texts['unit'][place]})."
    layers, heads = columns["qk_distance"].shape
    without = {int(layer) for layer in metrics.provenance.get("layers_without_heads", {})}
    there = [
        (layer, head) for layer in range(layers) if layer not in without for head in range(heads)
    ]
    yield (
        "scatter_data.json",
        [
            {"layer": layer, "head": head}
            | {name: _rounded(column[layer, head]) for name, column in columns.items()}
            for layer, head in there
        ],
    )
    for layer, head in there:
        yield f"heads/{head_name(layer, head)}.json", _of_head(examples, layer, head)
    yield "config.json", _config(metrics, examples, described, there)
    yield "server_config.json", {}
    yield "attributions/manifest.json", {}


def _as_folder(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name.rstrip("/").rpartition("/")[2]).strip(".-") or "-"


def _as_metric(title: str, taken: dict[str, str]) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    return f"poskernel_{name}" if name in taken else name


def _rounded(number: float) -> float | None:
    return round(float(number), DECIMALS) if math.isfinite(number) else None


def _config(
    metrics: Result, examples: Result, described: dict[str, str], heads: list[tuple[int, int]]
) -> dict[str, Any]:
    run = metrics.provenance
    model, _, corpus = folder_of(metrics)
    layers, heads_per_layer = metrics.values["qk_distance"].shape
    return {
        "model_name": run["model"],
        "np_model_id": model,
        "dataset_name": run["corpus"],
        "heads": [list(head) for head in heads],
        "n_layers": layers,
        "n_heads": heads_per_layer,
        "n_intervals": examples.params["intervals"],
        "metrics": list(described),
        "metric_descriptions": described,
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [
            {"key": "qk_distance_histogram", "label": "Q-K distance"},
            {"key": "histogram", "label": "Largest attention"},
        ],
        "custom_tables": [
            {"key": "top_query_tokens", "label": "Query tokens with most attention"},
            {"key": "top_key_tokens", "label": "Key tokens with most attention"},
        ],
        "statistics_display": {
            "n_samples": {"label": "Texts kept", "format": "default"},
            "mean_max_activation": {"label": "Mean largest attention", "format": "default"},
        },
        "pipeline_config": {
            "model_name": run["model"],
            "np_model_id": model,
            "dataset_name": run["corpus"],
            "folder": corpus,
            "n_sequences": run["windows"],
            "seq_len": run["context"],
            "dtype": run["dtype"],
            "attn_implementation": "poskernel",
            "start_token": run["start_token"],
            "seed": run["seed"],
            "model_fingerprint": run["model_fingerprint"],
            "corpus_fingerprint": run["corpus_fingerprint"],
            "versions": run.get("versions"),
            "created_at": run["date"],
        },
    }


def _of_head(examples: Result, layer: int, head: int) -> dict[str, Any]:
    texts = list(_sequences(examples, layer, head))
    counts = examples.values["activation_histogram"][layer, head]
    edges = np.linspace(0, 1, len(counts) + 1)
    return {
        "sequences": texts,
        "qk_distance_histogram": _distances(texts),
        "histogram": {
            "bin_edges": [round(float(edge), DECIMALS) for edge in edges],
            "bin_values": [int(count) for count in counts],
        },
        "top_query_tokens": _top_tokens(texts, 0),
        "top_key_tokens": _top_tokens(texts, 1),
        "statistics": {
            "n_samples": len(texts),
            "mean_max_activation": _rounded(examples.values["mean_max_activation"][layer, head]),
        },
    }


def _sequences(examples: Result, layer: int, head: int) -> Iterator[dict[str, Any]]:
    values = {name: array[layer, head] for name, array in examples.values.items()
              if examples.axes[name][:2] == ("layer", "head")}  # fmt: skip
    words = examples.texts["words"]
    rows = {int(text): row for row, text in enumerate(examples.coordinates["text"])}
    order = np.lexsort((-values["max_activation"], values["interval"]))
    for place in order[values["interval"][order] > 0]:
        attention, key = values["top_attention"][place], values["top_key"][place].astype(int)
        length = len(attention)
        flat = np.arange(length)[:, None] * length + key
        kept = attention >= LEAST
        by_index = np.argsort(flat[kept])
        number = int(values["example_text"][place])
        yield {
            "sequence_id": number,
            "interval": int(values["interval"][place]),
            "tokens": [str(words[token]) for token in examples.values["token"][rows[number]]],
            "attention_indices": flat[kept][by_index].tolist(),
            "attention_values": [
                round(float(weight), DECIMALS) for weight in attention[kept][by_index]
            ],
            "seq_len": length,
            "max_activation": _rounded(values["max_activation"][place]),
        }


def _pairs(texts: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int, int, float]]:
    for text in texts:
        for flat, value in zip(text["attention_indices"], text["attention_values"], strict=True):
            yield text, *divmod(flat, text["seq_len"]), value


def _distances(texts: list[dict[str, Any]]) -> dict[str, Any]:
    bins = [0.0] * (len(DISTANCES) - 1)
    for _, query, key, value in _pairs(texts):
        place = bisect_right(DISTANCES, query - key) - 1
        if place < len(bins):
            bins[place] += value
    return {"bin_edges": [*DISTANCES], "bin_values": [round(total, DECIMALS) for total in bins]}


def _top_tokens(texts: list[dict[str, Any]], side: int) -> list[dict[str, Any]]:
    weight: dict[str, float] = defaultdict(float)
    for text, query, key, value in _pairs(texts):
        weight[text["tokens"][(query, key)[side]]] += value
    ranked = sorted(weight.items(), key=lambda item: -item[1])[:MAX_TOKENS]
    return [{"token": token, "weight": round(total, DECIMALS)} for token, total in ranked]
