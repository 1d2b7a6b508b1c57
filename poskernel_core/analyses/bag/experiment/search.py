"""Search the bag: tokens similar to a token, and neurons that fire for words."""

import numpy as np
import torch

from poskernel_core.analyses.bag.experiment.bag import listed_tokens
from poskernel_core.analyses.bag.experiment.neuron import bag_of
from poskernel_core.analyses.bag.experiment.vocabulary import ends
from poskernel_core.analyses.bag.search import (
    ExtendedEmbedding,
    ExtendedEmbeddingParams,
    WordNeurons,
    WordNeuronsParams,
)
from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.contextual_heads.experiment.contents import token_id
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result


def extended_embedding(
    subject: ExperimentContext,
    statistics: Statistics,
    params: ExtendedEmbeddingParams,
    progress: Progress,
) -> Result:
    """Return the nearest tokens; see :class:`~poskernel_core.analyses.ExtendedEmbedding`."""
    main = statistics["main"]
    progress(0, 1)
    word = token_id(subject, params.word)
    bag = bag_of(subject, main, params)
    listed = np.setdiff1d(listed_tokens(subject, params.min_count), [word])
    if not len(listed):
        raise BadRequest(
            f"No other token occurs {params.min_count} times in the windows: ask for fewer."
        )
    ids = np.concatenate([[word], listed])
    table, plain = bag.table(ids), bag.layer.embedding[ids]
    cosine, plain_cosine = (
        torch.cosine_similarity(each[:1] - each.mean(dim=0), each - each.mean(dim=0)).numpy()
        for each in (table, plain)
    )
    nearest = np.argsort(-cosine[1:], kind="stable")[: params.top_k] + 1
    length = torch.linalg.norm(table, dim=1).numpy()
    return ExtendedEmbedding.result(
        params,
        {
            "nearest": ids[nearest],
            "cosine": cosine[nearest],
            "plain_cosine": plain_cosine[nearest],
            "length": np.asarray(length[0]),
            "length_rank": np.asarray((length[1:] < length[0]).mean()),
        },
        texts={"words": subject.decode(ids[nearest].tolist())},
    )


def word_neurons(
    subject: ExperimentContext,
    statistics: Statistics,
    params: WordNeuronsParams,
    progress: Progress,
) -> Result:
    """Return the neurons of some words; see :class:`~poskernel_core.analyses.WordNeurons`."""
    main = statistics["main"]
    progress(0, 1)
    if subject.encode is None or not params.words.split():
        raise BadRequest("Expected words, and a model with a tokenizer: give some.")
    tokens = [token for word in params.words.split() for token in subject.encode(f" {word}")]
    bag = bag_of(subject, main, params)
    readers = bag.readers()
    found = ends(bag.table(listed_tokens(subject, params.min_count)), readers, 1)
    mean, std = found["contribution_mean"], found["contribution_std"]
    added = bag.embed(torch.tensor(tokens, device="cpu")) @ readers
    each = (added - mean) / torch.where(std > 0, std, torch.nan)
    score = each.mean(dim=0).numpy()
    order = np.argsort(score, kind="stable")
    return WordNeurons.result(
        params,
        {
            "score": score,
            "word_score": each.numpy(),
            "for": order[::-1][: params.top_k].copy(),
            "against": order[: params.top_k].copy(),
        },
        texts={"words": subject.decode(tokens)},
    )
