"""Search the bag: tokens similar to a token, and neurons that fire for words."""

from pydantic import Field

from poskernel_core.analyses.bag.params import BagExperiment, ListedParams
from poskernel_core.common.result import outputs


class ExtendedEmbeddingParams(ListedParams):
    """Parameters of the search for tokens."""

    word: str = Field(min_length=1, max_length=64, description="exactly one token of the model")
    top_k: int = Field(20, ge=1, le=1000, description="nearest tokens listed")


class ExtendedEmbedding(BagExperiment[ExtendedEmbeddingParams]):
    r"""The tokens whose extended embeddings are nearest to that of one token.

    Formula: $\cos(e(t) - \bar e,\ e(t') - \bar e)$ with the mean $\bar e$ over tokens.

    Choices: the mean is taken out because all extended embeddings share it.

    Limits: near tokens contribute alike to the bag, which ignores the order of tokens in a text.

    Source: "Contextual attention heads in the first layer of GPT-2".
    """

    name = "extended-embedding"
    title = "Extended embeddings"
    noun_phrase = "the extended embeddings of tokens"
    params = ExtendedEmbeddingParams
    values = outputs("""
        nearest [rank], token: ids of the tokens whose extended embeddings are nearest
        cosine [rank], cosine: cosine of their extended embeddings with the token's
        plain_cosine [rank], cosine: the same of the token embeddings themselves
        length, norm: norm of the token's extended embedding
        length_rank, share of tokens: share of tokens whose extended embedding is shorter
    """)
    texts = outputs("words [rank], token: the nearest tokens")
    figure = "nearest_figure"
    runs = "search:extended_embedding"


class WordNeuronsParams(ListedParams):
    """Parameters of the search for neurons."""

    words: str = Field(
        min_length=1, max_length=2000, description="words, such as 'SELECT rows table'"
    )
    top_k: int = Field(20, ge=1, le=500, description="neurons listed at either end")


class WordNeurons(BagExperiment[WordNeuronsParams]):
    r"""Which neurons some words activate, and which they suppress.

    Formula: $\frac1W \sum_w (g_j(w) - \bar g_j) / \mathrm{sd}(g_j)$ with contributions $g_j$ of
    all tokens to neuron $j$: how far the words stand out among the vocabulary.

    Choices: every word gets a leading space, as in running text, and all its tokens count, even
    rare ones.

    Limits: neurons that the bag hardly drives also have scores, so look at their drive as well.

    Source: ours; the contributions are those of "Contextual attention heads in the first layer of
    GPT-2".
    """

    name = "word-neurons"
    title = "Neurons of words"
    noun_phrase = "the neurons that fire for words"
    params = WordNeuronsParams
    values = outputs("""
        score [neuron], standard deviations: mean over the words' tokens of the standardised
            contribution
        word_score [word neuron], standard deviations: the standardised contribution of each token
        for against [rank], neuron: neurons with the largest and the smallest score
    """)
    texts = outputs("words [word], token: the words' tokens")
    figure = "scores_figure"
    runs = "search:word_neurons"
