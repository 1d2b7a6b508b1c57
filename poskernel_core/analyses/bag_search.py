"""Searching the bag: tokens like a token, and neurons that fire for words."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.bag_params import BagExperiment, ListedParams
from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.views import StatisticsView

__all__ = ["ExtendedEmbedding", "WordNeurons"]


class ExtendedEmbeddingParams(ListedParams):
    """Parameters of the search for tokens."""

    word: str = Field(min_length=1, max_length=64, description="exactly one token of the model")
    listed: int = Field(20, ge=1, le=1000, description="nearest tokens listed")


class ExtendedEmbedding(BagExperiment):
    r"""The tokens whose extended embeddings are nearest to one token's.

    * ``nearest [rank]``: their ids; ``cosine [rank]`` with the token's.
    * ``plain_cosine [rank]``: the same of the token embeddings themselves.
    * ``length``: norm of the token's extended embedding; ``length_rank``: share of tokens whose
      is shorter.

    Formula: $\cos(e(t) - \bar e,\ e(t') - \bar e)$ with the mean $\bar e$ over tokens.

    Choices: the mean is taken out because all extended embeddings share it.

    Limits: nearness says that two tokens leave the same trace in the bag, nothing of their order.

    Source: "Contextual attention heads in the first layer of GPT-2".
    """

    name = "extended-embedding"
    title = "Extended embeddings"
    spoken = "the extended embeddings of tokens"
    params = ExtendedEmbeddingParams

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: ExtendedEmbeddingParams,
        progress: Progress,
    ) -> Result:
        """Compare one row of the table with all others."""
        from poskernel_core.experiments.search import extended_embedding

        return extended_embedding(subject, statistics["main"], params, progress)


class WordNeuronsParams(ListedParams):
    """Parameters of the search for neurons."""

    words: str = Field(
        min_length=1, max_length=2000, description="words, such as 'SELECT rows table'"
    )
    listed: int = Field(20, ge=1, le=500, description="neurons listed at either end")


class WordNeurons(BagExperiment):
    r"""Which neurons fire for some words, and which are kept from firing.

    * ``score [neuron]``: mean over the words' tokens of the standardised contribution.
    * ``word_score [word, neuron]``: of each token.
    * ``for``, ``against [rank]``: neurons with the largest and the smallest score.

    Formula: $\frac1W \sum_w (g_j(w) - \bar g_j) / \mathrm{sd}(g_j)$ with contributions $g_j$ of
    all tokens to neuron $j$: how far the words stand out among the vocabulary.

    Choices: every word is searched with a leading space, as it stands in running text, and all its
    tokens count; tokens in the words need not be frequent.

    Limits: neurons that the bag hardly drives have scores as well: see their drive.

    Source: ours; the contributions are those of "Contextual attention heads in the first layer of
    GPT-2".
    """

    name = "word-neurons"
    title = "Neurons of words"
    spoken = "the neurons that fire for words"
    params = WordNeuronsParams

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: WordNeuronsParams,
        progress: Progress,
    ) -> Result:
        """Multiply the words' extended embeddings with all neurons."""
        from poskernel_core.experiments.search import word_neurons

        return word_neurons(subject, statistics["main"], params, progress)
