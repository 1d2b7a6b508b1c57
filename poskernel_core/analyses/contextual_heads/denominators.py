"""One head's softmax denominator along positions, and its content weights of tokens."""

from pydantic import Field

from poskernel_core.analyses.base import SkipParams, TokenParams
from poskernel_core.analyses.contextual_heads.spec import DestinationExperiment
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import estimates, outputs, sizes
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, RunSpec


class CellParams(SkipParams, TokenParams):
    """Parameters that name a head and the destination token."""

    head: str = Field("L0H0", description="the head, such as L0H3")


class DenominatorsParams(CellParams):
    """Parameters of the denominator along positions."""

    n_positions: int = Field(16, ge=2, le=256, description="positions, evenly spaced")
    first_windows: int = Field(
        16, ge=2, le=1000, description="first windows of text, which the token is put into"
    )
    own_texts: str = Field(
        "",
        max_length=MAX_TEXT_CHARACTERS,
        description="texts of your own, divided by lines of three dashes",
    )
    items: str = Field(
        "", max_length=1000, description="named texts, such as 'Genesis 24; Exodus 12'"
    )


class Denominators(DestinationExperiment[DenominatorsParams]):
    r"""One head's denominator of a fixed token against position, for several windows.

    Formula: $Z_n = \sum_j K(n,j)\, e^{c(n,j)}$;
    $\mathrm{Var}[Z_n] = \mathrm{Var}[w] / \mathrm{ETC}(n)$ for independent content.

    Choices: as for contextual heads; positions are evenly spaced and include the context's last
    position. Texts of your own are drawn alongside, but do not enter mean and variation.

    Limits: one token at a time; with ten windows, a coefficient of variation is uncertain by about
    a quarter. Errors come from leaving out one group of texts at a time, from the windows and from
    the mean keys.

    Source: "Contextual attention heads in the first layer of GPT-2".
    """

    name = "denominators"
    title = "Denominators along positions"
    noun_phrase = "softmax denominators along positions"
    error_counts = "windows"
    values = (
        *outputs("""
            denominator [text query], weight: $Z_n$ with the token put at position $n$ of each
                window
        """),
        *outputs(
            "own_denominator [own_text query], weight: the same in texts of your own and in named "
            "chapters",
            optional=True,
        ),
        *estimates("mean [query], weight: mean of the denominator over windows"),
        *sizes("""
            denominator_cv [query], relative to the mean: coefficient of variation over windows:
                standard deviation over mean
        """),
        *outputs("""
            predicted_cv [query], relative to the mean: the ``denominator_cv`` that independent
                content would give
            etc [query], tokens: effective token count (ETC) of the token's mean kernel
        """),
    )
    texts = outputs("own_texts [own_text], name: the reader's texts and the chapters asked for")
    precomputed = "experiments"
    long = True
    runs = "denominators:denominators"

    def with_params(self, run: RunSpec, params: DenominatorsParams) -> RunSpec:
        if run.context < params.skip + 3:
            raise BadRequest(
                f"Expected a context of {params.skip + 3} tokens or more with {params.skip} "
                f"skipped keys, got {run.context}: ask for a longer one, or skip fewer."
            )
        return run


class TokenWeightsParams(CellParams):
    """Parameters of the weights of tokens."""

    query: int = Field(ge=1, description="position of the destination token")
    min_count: int = Field(
        3, ge=0, le=1_000_000, description="times that a token must occur in the windows"
    )
    top_k: int = Field(40, ge=1, le=1000, description="tokens listed at either end")
    first_windows: int = Field(
        128, ge=2, le=10_000, description="first windows of text, which are read (later layers)"
    )


class TokenWeights(DestinationExperiment[TokenWeightsParams]):
    r"""Which tokens a head weights up and down, for a fixed destination token.

    Formula: $c(n,i) = \text{scale}\; q_n \cdot (k_i - m_i)$, mean over keys $i$ that hold the
    token.

    Choices: in layer 0, whose keys depend only on token and position, every token is placed at four
    positions that divide the mass of the head's kernel equally. In later layers, where context
    matters, scores are means over the token's occurrences in the windows. Special tokens, and
    tokens rarer in the windows than ``min_count``, are left out.

    Limits: a mean over contexts hides that a head of a later layer may weight a token by its
    context. Errors are over groups of texts. In layer 0 only the mean keys depend on texts, so all
    tokens have the same error. In later layers a token that occurs in a single group has no error.

    Source: "Contextual attention heads in the first layer of GPT-2" (keywords and stop words).
    """

    name = "token-weights"
    uses = ("token embeddings",)
    title = "Content weights of tokens"
    noun_phrase = "how the head weights tokens"
    error_counts = "places of each token"
    values = outputs("""
        ± log_weight [token], nats: mean content score of each token; its exponential is the factor
            by which content changes the token's attention
        count [token], places: how often the token was seen: in layer 0 in all windows of the run,
            in later layers in those that were read
        top_value bottom_value [rank], nats: the largest and the smallest content scores
    """)
    texts = outputs("top_words bottom_words [rank], token: the tokens that have them")
    precomputed = "experiments"
    long = True
    runs = "token_weights:token_weights"
