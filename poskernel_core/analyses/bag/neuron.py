"""What the bag adds to one neuron of layer 0, and which tokens and neurons a word finds in it."""

from pydantic import Field

from poskernel_core.analyses.bag.params import BagExperiment, BagParams, Kernel, ListedParams
from poskernel_core.common.result import TOKENS, outputs
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS

NEURON = "number of the neuron in layer 0"


class NeuronParams(ListedParams):
    """Parameters of one neuron's contributions."""

    neuron: int = Field(0, ge=0, description=NEURON)
    top_k: int = Field(40, ge=1, le=1000, description="tokens listed at either end")


class Neuron(BagExperiment[NeuronParams]):
    r"""The contributions of all tokens to one neuron, and similar neurons.

    Formula: $g_j(t) = e(t) \cdot u_j$ with extended embeddings $e(t)$; $u_j$ combines the input
    weights of neuron $j$ and the second norm at its mean scale. Over tokens,
    $\mathrm{Cov}(g_i, g_j) = u_i^\top\, \mathrm{Cov}(e)\, u_j$, so all correlations need only one
    square matrix, as wide as the stream.

    Choices: here ``scale`` concerns the first norm only: each token has its own scale (token), or
    all have the same. All tokens have equal weight. Two neurons with correlation near 1 and
    opposite outputs cancel, as the post suspects of GPT-2's neurons 300 and 704.

    Limits: as for contextual neurons; what a neuron reads besides the bag is ignored.

    Source: "Contextual attention heads in the first layer of GPT-2"; we added related neurons.
    """

    name = "neuron"
    title = "A neuron's tokens"
    noun_phrase = "the neuron's tokens"
    values = outputs("""
        contribution [token], pre-activation: what one token in the bag adds to the neuron's
            pre-activation
        related [neuron], correlation: correlation, over tokens, of every neuron's contributions
            with this one's: 1 for a neuron that reads the same contexts, -1 for the opposite
        output_cosine [neuron], cosine: cosine between the output weights: what they write
        top_value bottom_value [rank], pre-activation: the largest and the smallest contributions
        bias, pre-activation: the neuron's bias
    """)
    texts = outputs("""
        top_words bottom_words [rank], token: the tokens that contribute them
        heads [chosen], name: the contextual heads
    """)
    runs = "neuron:neuron"


class NeuronTraceParams(BagParams):
    """Parameters of a neuron's trace along a text."""

    neuron: int = Field(0, ge=0, description=NEURON)
    text: str = Field("", max_length=MAX_TEXT_CHARACTERS, description="a text, as typed")
    item: str = Field("", max_length=200, description="a named text, such as 'Genesis 24'")
    window: int = Field(
        0, ge=0, le=1_000_000, description="where neither is given: this window of the corpus"
    )
    kernel: Kernel = "own"


class NeuronTrace(BagExperiment[NeuronTraceParams]):
    r"""Predicted and true pre-activation of one neuron along one text.

    Formula: $\hat a_j(n) = \mathrm{norm}_2\big(x_n + \sum_i K(n,i)\, e(t_i) + p_n + o_n\big) \cdot
    w_j + b_j$. Here $x_n$ is the stream, $p_n$ is what contextual heads write because of position,
    and $o_n$ is what other heads write if they attend to the current token alone. Each part goes
    through the norm's linear map, so the parts add up to the prediction.

    Choices: the text is the reader's own, a chapter, or a window of the corpus, cut to the context.

    Limits: one text; the variance in its $R^2$ is about the mean over its own positions.

    Source: "Evaluating the approximation of contextual neurons" in "Contextual attention heads in
    the first layer of GPT-2".
    """

    name = "neuron-trace"
    title = "A neuron along a text"
    noun_phrase = "the neuron along a text"
    values = outputs("""
        true predicted [pos], pre-activation: pre-activations
        bag position others direct [pos], pre-activation: the parts of the prediction: contextual
            heads by tokens, contextual heads by position, other heads, current token and biases
        contribution [pos], pre-activation: what the token at each position would add if the bag
            held it alone; the second norm has its mean scale here, and perhaps another one in the
            prediction
        r2, share of variance: how well the prediction does over the text, start token left out; 1
            is best
        correlation, correlation: how well the prediction does over the text, start token left out;
            1 is best
        sign_agreement, share of positions: how well the prediction does over the text, start token
            left out; 1 is best
        r2_of_bag, share of variance: the bag's part against what the other parts leave over; 1 is
            best
    """)
    texts = (TOKENS, *outputs("heads [chosen]", "name", "the contextual heads"))
    runs = "neuron:neuron_trace"


class NeuronLatentsParams(ListedParams):
    """Parameters of the decomposition of a neuron's contributions."""

    neuron: int = Field(0, ge=0, description=NEURON)
    components: int = Field(24, ge=2, le=64, description="independent components to look for")
    shown: int = Field(6, ge=1, le=64, description="sub-latents listed, largest share first")
    top_k: int = Field(12, ge=1, le=200, description="tokens listed at either end")


class NeuronLatents(BagExperiment[NeuronLatentsParams]):
    r"""A neuron's contributions as a sum of sub-latents that are shared by all neurons.

    Formula: independent component analysis of the extended embeddings finds directions whose
    values $s_m(t)$ are uncorrelated, of unit variance, and as far from a normal distribution as
    possible: $e(t) - \bar e \approx \sum_m a_m s_m(t)$. Hence $g(t) - \bar g = \sum_m
    (u \cdot a_m)\, s_m(t) + \text{rest}$ with shares $(u \cdot a_m)^2 / \mathrm{Var}(g)$.

    Choices: FastICA on the first principal components, seeded by the run's seed.
    Sub-latents belong to the vocabulary, so several neurons may share one.

    Limits: components depend on their number, and on the seed where several are alike; a latent
    is a group of tokens that vary together, not yet a meaning.

    Source: the further work of "Contextual attention heads in the first layer of GPT-2" asks for a
    decomposition; this one is ours.
    """

    name = "neuron-latents"
    title = "A neuron's sub-latents"
    noun_phrase = "the neuron's sub-latents"
    values = outputs("""
        share [latent], share of variance: share of the contributions' variance over tokens; with
            ``rest`` they add up to 1 when all are listed
        rest, share of variance: share that the components leave out
        weight [latent], pre-activation: what a token of one standard deviation adds; positive by
            choice of sign
        top bottom [latent rank], token: tokens with the largest and the smallest value of the
            latent
        top_value bottom_value [latent rank], standard deviations: their values
    """)
    texts = outputs("top_words bottom_words [latent rank], token: these tokens")
    runs = "latents:neuron_latents"


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
    values = outputs("""
        nearest [rank], token: ids of the tokens whose extended embeddings are nearest
        cosine [rank], cosine: cosine of their extended embeddings with the token's
        plain_cosine [rank], cosine: the same of the token embeddings themselves
        length, norm: norm of the token's extended embedding
        length_rank, share of tokens: share of tokens whose extended embedding is shorter
    """)
    texts = outputs("words [rank], token: the nearest tokens")
    runs = "neuron:extended_embedding"


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
    values = outputs("""
        score [neuron], standard deviations: mean over the words' tokens of the standardised
            contribution
        word_score [word neuron], standard deviations: the standardised contribution of each token
        for against [rank], neuron: neurons with the largest and the smallest score
    """)
    texts = outputs("words [word], token: the words' tokens")
    runs = "neuron:word_neurons"
