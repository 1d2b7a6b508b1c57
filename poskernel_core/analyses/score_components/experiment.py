"""Run one text up to a head's layer, and split the scores of one query."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.score_components.spec import ScoreComponents, ScoreComponentsParams
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.forward.attention import AttentionCall, softmax_with_sinks
from poskernel_core.forward.components import Reading, read_components

MAX_NUMBERS = 2**28
"""Most numbers of all components of one text, 1 GB."""


def score_components(subject: ExperimentContext, params: ScoreComponentsParams) -> Result:
    """Split the scores: :class:`~poskernel_core.analyses.score_components.spec.ScoreComponents`."""
    geometry, tokens = subject.model.geometry, subject.windows[:1]
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    if reason := geometry.reason(layer):
        raise BadRequest(f"Layer {layer} has no heads ({reason}): choose a head of another layer.")
    query = checked_query(subject, params.query, layer + 1)
    ids = torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))
    reading = read_components(subject.model, ids, layer)
    visible, attention, bias = attention_row(reading.call, head, query)
    key = most_attended(attention) if params.key is None else params.key
    chosen = {"component_score": key}
    if params.other is not None:
        chosen["other_component_score"] = params.other
    for key in chosen.values():
        if key >= len(visible) or not visible[key]:
            raise BadRequest(
                f"The query at {query} does not see a key at {key}: expected one from "
                f"{int(visible.argmax())} to {query}."
            )
    row = counted_keys(visible, params.skip)
    columns = {name: np.eye(len(row))[key] for name, key in chosen.items()}
    values = _components(reading, head, query, columns | {"mean_component_score": row / row.sum()})
    for name in ("query_margin", "key_margin"):
        values[name] = np.where(visible, values[name], np.nan)
    real = _product(reading.call, head, query) + bias
    if reading.call.slopes is not None:
        values["alibi_bias"] = np.where(visible, bias, np.nan)
    positions = {"chosen_query": query, "chosen_key": chosen["component_score"]}
    names = list(reading.names)
    return ScoreComponents.result(
        params,
        values
        | {"score": np.where(visible, real, np.nan), "attention": attention, "counted": row * 1.0}
        | {name: np.array(float(at)) for name, at in positions.items()},
        texts={"query_names": names, "key_names": names},
        provenance={"text_tokens": tokens.shape[1], "soft_cap": reading.call.cap or 0.0},
    )


def checked_query(subject: ExperimentContext, query: int, layers: int) -> int:
    """Return the position of a query in a text that is split into what some layers write.

    Raises:
        BadRequest: the text is too short for the query, or too long to be split.
    """
    geometry, length = subject.model.geometry, subject.windows.shape[1]
    if query >= length:
        raise BadRequest(
            f"The text has {counted(length, 'token')}: expected a query from 0 to {length - 1}, "
            f"got {query}."
        )
    longest = MAX_NUMBERS // layers // (geometry.n_heads * geometry.d_head + geometry.d_model)
    if length > longest:
        raise BadRequest(
            f"Splitting what {counted(layers, 'layer')} write takes a text of up to {longest:,} "
            f"tokens, got {length:,}: choose a shorter text."
        )
    return length - 1 if query < 0 else query


def _components(
    reading: Reading, head: int, query: int, columns: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    queries = reading.projected("query", head, slice(query, query + 1))[:, 0, 0]
    keys = (_double(part[:, 0]) for part in reading.each("key", head, slice(0, query + 1)))
    return split(reading.call.scale * _double(queries), keys, columns)


def _product(call: AttentionCall, head: int, query: int) -> np.ndarray:
    own = head * call.k.shape[1] // call.q.shape[1]
    product: np.ndarray = _double(call.k[0, own, : query + 1]) @ _double(call.q[0, head, query])
    return call.scale * product


def attention_row(
    call: AttentionCall, head: int, query: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which keys up to a query are visible, their attention, and ALiBi's bias or zeros."""
    keys, rule = np.arange(query + 1), call.rule.of_heads(slice(head, head + 1))
    bias = np.zeros(len(keys))
    if rule.slopes is not None:
        bias = rule.bias(slice(query, query + 1), slice(0, query + 1), bias)[0, 0]
    hidden = rule.is_hidden(query, keys)
    scores = np.where(hidden, -np.inf, rule.capped(_product(call, head, query)) + bias)
    sinks = None if call.sinks is None else call.sinks[head : head + 1].cpu()
    attention = softmax_with_sinks(torch.from_numpy(scores)[None, None, None], sinks)
    return ~hidden, attention[0, 0, 0].numpy(), bias


def _double(x: Tensor) -> np.ndarray:
    return x.cpu().double().numpy()


def split(
    queries: Float[np.ndarray, "query_component d"],
    keys: Iterable[Float[np.ndarray, "_ key d"]],
    columns: Mapping[str, Float[np.ndarray, " key"]],
) -> dict[str, np.ndarray]:
    """Split the scores of one query, already scaled, by the components of query and key.

    ``keys`` are some components at a time. Each of ``columns`` weights the keys: one key, or a mean
    of several. Returns their tables ``[query_component key_component]`` by name, and the margins of
    every key.
    """
    full_query, weights = queries.sum(axis=0), np.stack([*columns.values()])
    margins, weighted, total = [], [], np.float64(0)
    for part in keys:
        margins.append(part @ full_query)
        weighted.append(weights @ part)
        total = total + part.sum(axis=0)
    tables = np.einsum("ad,bcd->cab", queries, np.concatenate(weighted), optimize=True)
    values = dict(zip(columns, tables, strict=True))
    return values | {"query_margin": queries @ total.T, "key_margin": np.concatenate(margins)}


def counted_keys(visible: Bool[np.ndarray, " key"], skip: int) -> Bool[np.ndarray, " key"]:
    """Return the keys over which a row's mean is taken: visible, not skipped, and not key 0.

    All visible keys if there are no others.
    """
    counted = visible & (np.arange(len(visible)) >= max(skip, 1))
    return counted if counted.any() else visible


def most_attended(attention: Float[np.ndarray, " key"]) -> int:
    """Return the key with most attention, key 0 aside where there is another."""
    first = int(attention[1:].any())
    return first + int(attention[first:].argmax())
