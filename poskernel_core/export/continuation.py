"""Python that goes on from a figure in TransformerLens: the same model, windows and number."""

import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

import numpy as np

from poskernel_core.analyses import ANALYSES
from poskernel_core.common.groups import groups_of
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.result import TOKENS, Result
from poskernel_core.common.specs import QUERIES_PER_POSITION
from poskernel_core.data.made import RANDOM
from poskernel_core.data.moves import parse_cells, parse_layers, parse_moves
from poskernel_core.data.texts import TYPED
from poskernel_core.export.files import signature, template
from poskernel_core.models.catalog import local_directory
from poskernel_core.models.curated import BUNDLED_MODELS

ROTATED: Final = frozenset({
    "cohere", "cohere2", "exaone4", "gemma", "gemma3_text", "glm4", "gpt_oss", "granite", "lfm2",
    "llama", "mistral", "mixtral", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "phi", "qwen2",
    "qwen3", "qwen3_moe", "qwen3_next", "smollm3", "stablelm", "starcoder2",
})  # fmt: skip
"""Architectures whose bridge has hooks on queries and keys after the rotation."""
UNROTATED: Final = frozenset({"attn-only", "gpt2", "gpt_bigcode", "gpt_neo"})
"""Architectures with learned positions, whose bridge has hooks on queries and keys."""
READ_ONLY: Final = frozenset({"gpt_neo", "gptj", "opt"})
"""Architectures whose bridge ignores what hooks write into the pattern."""
BRIDGED: Final = ROTATED | UNROTATED | READ_ONLY | {"bloom", "gemma2", "gpt_neox", "mpt", "phi3"}
"""Architectures whose bridge has transformers' patterns and logits, and the output of each head."""
OWN_ATTENTION: Final = frozenset({"bloom", "falcon", "gpt_neo", "gptj", "mpt"})
"""Architectures whose attention does not go through transformers' attention functions."""
OTHER_SCORES: Final = frozenset({"gemma2", "llama4_text"})
"""Architectures whose scores are more than scaled products, or whose keys lie in chunks."""
COMMIT: Final = re.compile("[0-9a-f]{40}")
FEW: Final = ", before the correction for few texts"
NO_LIMIT: Final = 10**6


def continuation(result: Result, head: str = "", query: int | None = None) -> str:
    """Return the Python cell that goes on from a result.

    The cell boots the same model, reads the same windows, computes the number of the figure by
    hooks, if its question declares how (``Question.continued``), and ends with a next step. It
    uses transformer_lens where that has a bridge for the architecture, else transformers. It is
    empty for results without provenance.

    Args:
        result: what the figure shows.
        head: the head looked at, such as ``L0H3``, if the result has several.
        query: the query position looked at, likewise.
    """
    run = _first(result.provenance)
    if not {"model", "architecture", "corpus"} <= run.keys():
        return ""
    question, at = ANALYSES.get(result.analysis), _place(result, run, head, query)
    kind = question.continued if question else ""
    if str(run.get("architecture")) == "falcon":  # eager attention adds its ALiBi twice
        kind = ""
    kind_fields = _KINDS[kind](result, run, at) if kind else {}
    architecture = str(run.get("architecture"))
    bridged = kind_fields.get("bridged", architecture in BRIDGED)
    text = _text(run, result.params)
    fields: dict[str, Any] = {
        "title": signature(result),
        "kind": kind if kind_fields else "",
        "names": (),
        "ours": "",
        "bridged": bridged,
        "watched": architecture not in OWN_ATTENTION,
        "dtype": run.get("dtype", "float32"),
        "drawn": run.get("corpus") == RANDOM,
        "text": text,
        "windows": "" if text else _arguments(run),
        "few": f"[:{run['windows']}]"
        if run.get("windows", 0) < run.get("windows_asked", 0)
        else "",
        "several": not text and run.get("windows", 1) > 1,
        **at,
        **kind_fields,
    }
    fields["cell"] = head_name(fields["layer"], fields["head"])
    fields["boot"] = _boot(run, bridged=bridged)
    code = template("continuation.py.jinja").render(fields)
    return re.sub(r"\n{4,}", "\n\n\n", code).strip() + "\n"


def _first(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the first run, where a result joins several by commas."""
    several = ("model", "revision", "corpus", "context", "windows", "dtype")
    texts = {name: str(run[name]).split(", ")[0] for name in several if ", " in str(run.get(name))}
    numbers = {name: int(text) for name, text in texts.items() if text.isdigit()}
    return {**run, **texts, **numbers}


def _place(result: Result, run: Mapping[str, Any], head: str, query: int | None) -> dict[str, Any]:
    """Return layer, head and query position: those of the result, else those looked at."""
    chosen, gone = result.chosen, run.get("layers_without_heads") or {}
    cell = re.search(r"L(\d+)H(\d+)", str(result.params.get("head") or head))
    layer = next(candidate for candidate in count() if str(candidate) not in gone)
    layer, number = (int(cell[1]), int(cell[2])) if cell else (layer, 0)
    known = result.coordinates.get("query")
    n = chosen.get("query", result.params.get("query", query))
    if known is not None and len(known) and n not in known:
        n = int(known[-1])
    return {
        "layer": chosen.get("layer", layer), "head": chosen.get("head", number), "query": n,
    }  # fmt: skip


def _boot(run: Mapping[str, Any], *, bridged: bool) -> str:
    """Return the expression that boots a model.

    Not ``TransformerBridge.boot_transformers``: for a model that reads images too, it installs
    torchvision, and another torch with it (transformer_lens 4.3).
    """
    name, commit = str(run.get("model")), str(run.get("model_fingerprint"))
    revision = run.get("revision")
    if COMMIT.fullmatch(commit) and not local_directory(name) and name not in BUNDLED_MODELS:
        revision = commit
    more = f", revision={revision!r}" if revision not in (None, "main") else ""
    return f"pk.to_bridge({name!r}{more})" if bridged else f"pk.load({name!r}{more}).module"


def _arguments(run: Mapping[str, Any], **changed: Any) -> str:
    corpus = {
        key: run.get(f"corpus_{key}") for key in ("item", "revision") if run.get(f"corpus_{key}")
    }
    name = run.get("corpus")
    given = {
        "revision": None if run.get("revision") == "main" else run.get("revision"),
        "corpus": {"name": name, **corpus} if corpus else name,
        "context": run.get("context"),
        "windows": run.get("windows_asked", 1),
        "seed": run.get("seed") or None,
        "start_token": False if run.get("start_token") is False else None,
        **changed,
    }
    arguments = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    return ", ".join([repr(run.get("model")), *arguments])


def _text(run: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return the arguments that read the one text that a question is about; empty if it has none.

    Questions with a ``source`` read a text besides their windows.
    """
    typed, item = params.get("text"), params.get("text_item")
    if "source" in params or not (typed or item):
        return ""
    return _arguments(run, corpus=_corpus(typed, item, params), windows=1)


def _corpus(typed: str | None, item: str | None, params: Mapping[str, Any]) -> dict[str, Any]:
    if (typed or "").strip():
        return {"name": TYPED, "text": typed}
    return {"name": params.get("text_corpus"), "item": item}


def _ours(result: Result, name: str, at: Mapping[str, int]) -> str:
    array = result.plug_ins.get(name, result.values.get(name))
    if array is None:
        return ""
    for axis in reversed(result.axes[name]):
        known, place = result.coordinates.get(axis), at.get(axis)
        known = np.arange(array.shape[-1]) if known is None else known
        if place not in known:
            return ""
        array = array[..., int(np.flatnonzero(known == place)[0])]
    return f" (PosKernel: {float(array):.6g}{FEW if name in result.plug_ins else ''})"


def _kernel(result: Result, run: Mapping[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    architecture, params = str(run["architecture"]), result.params
    bridged = architecture in ROTATED | UNROTATED
    scaled = "score_scales" in run and run["position_scheme"] != "ALiBi" and at["query"] is not None
    if (
        not scaled
        or architecture in OTHER_SCORES
        or not (bridged or architecture not in OWN_ATTENTION)
    ):
        return {}
    layer, n = at["layer"], at["query"]
    window, arguments = run["sliding_windows"][layer], ""
    if params.get("source") == "text":
        corpus = _corpus(params.get("text"), params.get("text_item"), params)
        arguments = _arguments(run, corpus=corpus, windows=1)
    elif params.get("source") == "token":
        few = min(run["windows_asked"], QUERIES_PER_POSITION)
        start = None if run["start_token"] and n else False
        arguments = _arguments(
            run, windows=few, context=n + 1, destination=params["token"], start_token=start
        )
    hooks = ("hook_rot_q", "hook_rot_k") if architecture in ROTATED else ("hook_q", "hook_k")
    return {
        "bridged": bridged,
        "names": hooks,
        "scale": run["score_scales"][layer],
        "first": max(params.get("skip", 0), n - window + 1 if window else 0),
        "sampled": run["queries_per_position"],
        "asked": arguments,
        "ours": _ours(result, "etc", at),
    } | _peak(result, at)


def _peak(result: Result, at: dict[str, Any]) -> dict[str, Any]:
    if "kernel" not in result.values:
        return {}
    row = result.only("kernel")
    for axis in row.axes["kernel"][:-1]:
        row = row.select(**{axis: at[axis]})
    key = int(np.nanargmax(row.values["kernel"]))
    return {"key": key, "ours_of_key": _ours(row, "kernel", {"key": key})}


def _mean_pattern(result: Result, run: Mapping[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    value, place = {
        "entropy": ("entropy", {}), "sinks": ("alpha", {"key": 0}),
    }.get(result.analysis, ("profile", {"offset": 1}))  # fmt: skip
    seen = run.get("pattern_windows")
    return {
        "names": ("hook_pattern",),
        "ours": _ours(result, value, at | place),
        "start": int(bool(run.get("start_token"))),
        "skip": result.params.get("skip", 0),
    } | ({"few": f"[:{seen}]"} if seen else {})


def _induction(result: Result, run: Mapping[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    """The tokens of the first copy are the drawn windows; the cell repeats them."""
    period, start = result.params["period"], int(run["start_token"])
    samples = result.params["samples"]
    total = samples + -samples % groups_of(samples)  # as many of each group are read
    return {
        "names": ("hook_pattern",),
        "ours": _ours(result, "induction", at),
        "start": start,
        "period": period,
        "windows": _arguments(run, context=period + start, windows=total),
        "few": f"[:{samples}]" if total > samples else "",
        "drawn": False,
    }


def _one_text(result: Result, run: Mapping[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    length = run.get("text_tokens", len(result.words(TOKENS.name)))
    n = length - 1 if at["query"] is None else at["query"]
    fields: dict[str, Any] = {"names": ("hook_pattern",), "query": n, "key": None}
    if "pattern" in result.values:
        row = result.only("pattern")
        for axis in row.axes["pattern"][:-1]:
            row = row.select(**{axis: n if axis == "query" else at[axis]})
        if len(row.values["pattern"]) == length:  # else a cell is a block of tokens
            key = int(row.values["pattern"].argmax())
            fields |= {"key": key, "ours": _ours(row, "pattern", {"key": key})}
    return fields


def _change(result: Result, run: Mapping[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    params, architecture = result.params, str(run["architecture"])
    bridged, change, stage = architecture in BRIDGED, params["change"], params["stage"]
    fields: dict[str, Any] = {"change": change, "before": stage == "scores"}
    fields["square"] = "hook_attn_scores" if stage == "scores" else "hook_pattern"
    writes = bridged and architecture not in READ_ONLY
    match change:
        case "ablate" if bridged or architecture not in OWN_ATTENTION:
            silenced: dict[int, list[int]] = {}
            for layer, head in parse_cells(params["heads"], NO_LIMIT, NO_LIMIT):
                silenced.setdefault(layer, []).append(head)
            fields["silenced"] = silenced
        case "blind" if writes:
            layers = params["layers"].strip()
            layers = parse_layers(layers, NO_LIMIT) if layers else None
            fields |= {"every": params["every"], "layers": layers}
        case "move" if writes:
            layer, head = parse_cell(params["edited"] or params["head"], NO_LIMIT, NO_LIMIT)
            fields |= {name: params[name] for name in ("strength", "scope")}
            fields |= {"factor": params["scale"], "layer": layer, "head": head}
            fields["moves"] = parse_moves(params["moves"], result.words(TOKENS.name))
        case "average" if params["layer"] is None and architecture in UNROTATED:
            fields |= {"group": params["group"], "keep": params["keep"]}
        case "remove" if architecture in UNROTATED | ROTATED:
            turned = params["embeddings"] == "positions" and architecture in ROTATED
            embedding = "hook_embed" if params["embeddings"] == "tokens" else "hook_pos_embed"
            fields |= {"turned": turned, "embedding": embedding}
        case _:
            return {}
    losses = [result.values.get(f"mean_{name}_loss") for name in ("clean", "changed")]
    if None not in losses:
        fields["ours"] = f" (PosKernel: {losses[0]:.6g}, {losses[1]:.6g})"
    return fields


_KINDS: dict[str, Callable[[Result, Mapping[str, Any], dict[str, Any]], dict[str, Any]]] = {
    "kernel": _kernel,
    "profile": _mean_pattern,
    "sinks": _mean_pattern,
    "entropy": _mean_pattern,
    "induction": _induction,
    "text": _one_text,
    "change": _change,
}
"""What the cell of each kind computes; nothing where hooks cannot."""
