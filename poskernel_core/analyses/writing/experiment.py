"""Run one text and read what is written to the logits; map tokens through heads."""

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.experiment.contents import token_id
from poskernel_core.analyses.score_components.experiment import attention_row, checked_query
from poskernel_core.analyses.writing.spec import (
    Copying,
    CopyingParams,
    HeadWrites,
    HeadWritesParams,
    LogitContributions,
    LogitContributionsParams,
)
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.components import (
    Unembedding,
    read_circuits,
    read_unembedding,
    read_written,
)
from poskernel_core.forward.loaded import LoadedModel
from poskernel_core.forward.observers import Batch, Observer

HIGHEST = 10
"""Tokens that count as raised, or lowered, most."""
BATCH = 4
"""Windows per forward pass, if the execution does not say."""
TOKENS = 4096
"""Tokens embedded at a time."""
ROWS = 256
"""Tokens whose logits are held at a time."""


def head_writes(subject: ExperimentContext, params: HeadWritesParams) -> Result:
    """Read what one head writes: :class:`~poskernel_core.analyses.writing.spec.HeadWrites`."""
    geometry = subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    query = checked_query(subject, params.query, geometry.n_layers)
    looked = _Looked(layer)
    written = read_written(subject.model, _text(subject), query, [looked])
    name = head_name(layer, head)
    part = next(candidate for candidate in written.parts if name in candidate.names)
    at = part.names.index(name)
    assert part.out is not None
    row, out = part.rows[at, 0, 0].double(), part.out[at].double()
    every = written.unembedding.read(row.float() @ part.out[at]) @ written.unembedding.weight
    order = every.argsort(descending=True).tolist()
    ids = order[:HIGHEST] + order[-HIGHEST:]
    attention = torch.from_numpy(attention_row(looked.call, head, query)[1]).to(row)
    values = looked.call.v[0, head * looked.call.v.shape[1] // geometry.n_heads, : query + 1]
    by_key, z = attention[:, None] * values.double(), attention @ values.double()
    # what stands between attention and the projection: a gate, or a norm behind the block
    rows = by_key * torch.where(z == 0, 0.0, row / z)
    return HeadWrites.result(
        params,
        {
            "contribution": written.through(row @ out, ids).cpu().numpy(),
            "by_key": written.through(rows @ out, ids).T.cpu().numpy(),
            "chosen_query": np.array(float(query)),
        },
        texts={"words": subject.decode(ids)},
        coordinates={"word": np.array(ids)},
    )


class _Looked(Observer):
    """Keeps the queries, keys and values of one layer."""

    def __init__(self, layer: int) -> None:
        self._layer = layer

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer == self._layer:
            self.call = call


def logit_contributions(subject: ExperimentContext, params: LogitContributionsParams) -> Result:
    """Split one logit: :class:`~poskernel_core.analyses.writing.spec.LogitContributions`."""
    geometry = subject.model.geometry
    query = checked_query(subject, params.query, geometry.n_layers)
    written = read_written(subject.model, _text(subject), query)
    if params.token is not None:
        token = token_id(subject, params.token)
    elif query + 1 < subject.windows.shape[1]:
        token = int(subject.windows[0, query + 1])
    else:
        token = int(written.logits.argmax())
    named: dict[str, float] = {}
    for part in written.parts:
        numbers = written.through(part.written()[:, 0, 0].double(), [token])[:, 0]
        named |= dict(zip(part.names, numbers.tolist(), strict=True))
    own, layers = written.unembedding, range(geometry.n_layers)
    constants = {
        "final norm's bias": own.norm.bias.flatten().double() @ own.readers([token])[:, 0],
        "unembedding's bias": own.bias[token] - own.bias.mean(),
        "mean over the vocabulary": written.logits.double().mean(),
    }
    named |= {name: float(number) for name, number in constants.items() if number}
    heads = [[named.pop(head_name(i, j), np.nan) for j in range(geometry.n_heads)] for i in layers]
    mlps = [named.pop(f"MLP {layer}", np.nan) for layer in layers]
    return LogitContributions.result(
        params,
        {
            "head_contribution": np.array(heads),
            "mlp_contribution": np.array(mlps),
            "rest_contribution": np.array([*named.values()]),
            "logit": np.array(float(written.logits[token])),
            "chosen_query": np.array(float(query)),
            "chosen_token": np.array(float(token)),
        },
        texts={"rest": [*named], "token": subject.decode([token])[0]},
    )


def _text(subject: ExperimentContext) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(subject.windows[:1], dtype=np.int64))


class _Streams(Observer):
    """Sums of the stream before one layer by token, ``[token, model]``; without positions in 0."""

    def __init__(self, layer: int, ids: Tensor, model: LoadedModel) -> None:
        self._layer, self._positions = layer, torch.zeros(1, device="cpu")
        self._place = torch.full((model.geometry.n_vocab,), len(ids), device="cpu")
        self._place[ids] = torch.arange(len(ids), device="cpu")
        self.sums = torch.zeros(len(ids) + 1, model.geometry.d_model, device="cpu")

    def positions(self, x: Tensor, batch: Batch) -> None:
        self._positions = x

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        if layer == self._layer:
            x = x if layer else x - self._positions
            place = self._place[batch.tokens].flatten()
            self.sums.index_add_(0, place, x.flatten(0, 1).float().cpu())


def _streams(model: LoadedModel, layer: int, ids: Tensor, texts: Tensor, size: int) -> Tensor:
    """Return the mean stream before a layer where each token stands; in layer 0 its embedding."""
    seen = _Streams(layer, ids, model)
    for some in texts.split(size):
        model.run(some, observers=[seen], until=layer)
    counts = torch.bincount(texts.flatten(), minlength=model.geometry.n_vocab)[ids]
    return (seen.sums[:-1] / counts[:, None]).to(model.hooks.home)


def copying(subject: ExperimentContext, params: CopyingParams) -> Result:
    """Map tokens through every head: :class:`~poskernel_core.analyses.writing.spec.Copying`."""
    model, geometry = subject.model, subject.model.geometry
    windows = torch.from_numpy(np.ascontiguousarray(subject.windows, dtype=np.int64))
    counts = torch.bincount(windows[:, int(subject.start_token) :].flatten())
    few = min(params.frequent, int(counts.count_nonzero()))
    ids = counts.argsort(descending=True, stable=True)[:few]
    starts = {0: _streams(model, 0, ids, ids[:, None], TOKENS)}
    if geometry.n_layers > 1:
        starts[1] = _streams(model, 1, ids, windows, subject.batch or BATCH)
    circuits, unembedding = read_circuits(model, windows[:BATCH]), read_unembedding(model)
    product = _embedded_and_read(model, unembedding)
    shape = geometry.n_layers, geometry.n_heads
    arrays = {value.name: np.full(shape, np.nan) for value in Copying.values}
    for layer, circuit in circuits.items():
        for head in range(geometry.n_heads):
            subject.progress(layer * geometry.n_heads + head, arrays["copying_share"].size)
            read = unembedding.read(circuit.out[head])
            logits = read @ unembedding.weight
            for name, first in (("copying_share", 0), ("copying_share_first_layer", 1)):
                if first in starts and layer >= first:
                    values = circuit.values(starts[first], head)
                    arrays[name][layer, head] = _raised(values, logits, ids)
            matrix = read @ product @ circuit.value.matrix[head // circuit.value.shared]
            arrays["copying_eigenvalues"][layer, head] = eigenvalue_score(matrix.cpu().numpy())
    return Copying.result(params, arrays, provenance={"frequent_tokens": few})


def _embedded_and_read(model: LoadedModel, unembedding: Unembedding) -> Tensor:
    """Return ``W_U W_E [model, model]`` over the vocabulary."""
    weight, count = unembedding.weight, unembedding.weight.shape[1]
    product, mean = weight.new_zeros(len(weight), len(weight)), weight.mean(dim=1, keepdim=True)
    for ids in torch.arange(min(count, model.geometry.n_vocab), device="cpu").split(TOKENS):
        embedded = _streams(model, 0, ids, ids[:, None], TOKENS)
        product += (weight[:, ids.to(product.device)] - mean) @ embedded
    return product


def _raised(values: Tensor, logits: Tensor, ids: Tensor) -> float:
    """Return the share of tokens that their values ``[token, d]`` raise into the highest ones."""
    raised = 0
    for some, right in zip(values.split(ROWS), ids.to(values.device).split(ROWS), strict=True):
        scores = some @ logits
        raised += int(((scores >= scores.gather(1, right[:, None])).sum(dim=1) <= HIGHEST).sum())
    return raised / len(ids)


def eigenvalue_score(matrix: np.ndarray) -> float:
    """Return the sum of the eigenvalues' real parts over the sum of their sizes."""
    eigenvalues = np.linalg.eigvals(matrix.astype(float))
    size = float(np.abs(eigenvalues).sum())
    return float(eigenvalues.real.sum()) / size if size > 0 else np.nan
