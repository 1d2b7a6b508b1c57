"""What heads write to the logits: on one text, and whether they copy the tokens they look at."""

from pydantic import Field

from poskernel_core.analyses.base import KEPT_QUERIES, OWN_WINDOWS, Experiment, Params
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.sources import OnText, TextParams
from poskernel_core.common.result import outputs
from poskernel_core.common.specs import RunSpec


class OnTextParams(TextParams):
    """Parameters of what is written at one position of a text."""

    query: int = Field(-1, ge=-1, description="position in the text; -1: the last")


class HeadWritesParams(OnTextParams):
    """Parameters of what one head writes."""

    head: str = Field(min_length=1, max_length=16, description="head such as L0H3")


class LogitContributionsParams(OnTextParams):
    """Parameters of what makes the logit of one token."""

    token: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="the token; default: the one that follows, at the last position the likeliest",
    )


class CopyingParams(Params):
    """Parameters of the copying scores."""

    texts: int = Field(40, ge=1, le=5000, description="windows of text that tokens are taken from")
    frequent: int = Field(
        1000, ge=1, le=20000, description="most frequent tokens of these windows that are tried"
    )


class HeadWrites(OnText[HeadWritesParams]):
    r"""The tokens that one head raises and lowers most at one position of a text, and by which key.

    Formula: with the final norm's scale $\sigma_n$ held fixed, head $h$ adds $c\, (\gamma P (z_h
    W_O)) \cdot w_y / \sigma_n$ to the logit of token $y$; shown less its mean over the vocabulary.
    $P$ takes the mean away in LayerNorm, $c$ is the model's factor of logits. By key, $A(n,i)\,
    v_i$ stands in place of $z_h = \sum_i A(n,i)\, v_i$.

    Choices: the ten tokens raised and the ten lowered most, in descending order. Heads have their
    value biases. A norm behind the block, and a gate, are at the text's own scale; a soft cap of
    the logits comes after.

    Limits: what later heads and MLPs make of it is not seen, and can be more: in early layers the
    direct part is often arbitrary. One text is one observation, without errors.

    Source: "Interpretability in the Wild" (2211.00593); transformer_lens has it as logit
    attribution.
    """

    name = "head-writes"
    title = "What a head writes"
    noun_phrase = "what the head writes"
    uses = ("token embeddings", "predictions")
    values = outputs("""
        contribution [word], logits: what the head adds to the token's logit, less its mean over the
            vocabulary
        by_key [word key], logits: the same by the key that the head looked at
        chosen_query, position: the position
    """)
    texts = outputs("words [word], token: the tokens raised most, then those lowered most")
    runs = "head_writes"


class LogitContributions(OnText[LogitContributionsParams]):
    r"""What makes the logit of one token: every head, every MLP and all the rest, adding up to it.

    Formula: as for ``head-writes``, with each component $x_c$ of the stream behind the last layer
    in place of $z_h W_O$. The mean of all logits, which softmax ignores, is an entry of its own.
    All entries add up to the logit, exactly.

    Choices: the rest are the embeddings, the biases of attention outputs, those of the final norm
    and of the unembedding, layers without heads, and the mean over the vocabulary. MLPs have their
    own biases. With a soft cap, the logit is the one before it.

    Limits: contributions are direct ones: a head that matters by what a later head reads of it
    shows nothing here. Positive and negative entries cancel. One text is one observation, without
    errors.

    Source: "Interpretability in the Wild" (2211.00593); transformer_lens has it as direct logit
    attribution.
    """

    name = "logit-contributions"
    title = "What makes a token's logit"
    noun_phrase = "what makes the token's logit"
    uses = ("token embeddings", "predictions")
    values = outputs("""
        head_contribution [layer head], logits: what each head adds to the logit
        mlp_contribution [layer], logits: what each MLP adds; NaN without one
        rest_contribution [rest], logits: what all the rest adds
        logit, logits: the logit of the token, before a soft cap
        chosen_query, position: the position
        chosen_token, token id: the token
    """)
    texts = outputs("""
        rest [rest], name: what the rest is
        token, token: the token
    """)
    runs = "logit_contributions"


class Copying(Experiment[CopyingParams]):
    r"""Whether a head raises the very token that it looks at.

    Formula: for a token $t$, a vector $x_t$ goes through the norm before the head, the head's
    values and output, the final norm and the unembedding. The **copying score** is the share of
    frequent tokens that are among the ten with the highest logits of their own $x_t$. The
    **eigenvalue score** is $\sum \mathrm{Re}\, \lambda / \sum |\lambda|$ of $W_O N_f W_U W_E N_1
    W_V$, with $N$ the norms' linear parts, and $W_U$ less its mean over the vocabulary, which
    softmax ignores: 1 for a head that copies, $-1$ for one that suppresses.

    Choices: $x_t$ is the token's embedding, without position; or, for heads of later layers, the
    mean over texts of the stream behind the first layer where the token stands (what the first MLP
    makes of it, if there is one). Norms have their mean scale over the first texts. Biases of norm
    and values are included. Tokens with the same logit count as higher.

    Limits: this says what the head would write if it looked at the token, not whether it looks.
    A head that only a later head reads copies nothing here. For these tokens it is exact.

    Source: the eigenvalues: "A Mathematical Framework for Transformer Circuits" (Elhage et al.,
    2021); the share from the first layer: "Interpretability in the Wild" (2211.00593), for names.
    """

    name = "copying"
    title = "Does it copy what it looks at?"
    noun_phrase = "the copying scores of all heads"
    values = outputs("""
        copying_share [layer head], share of tokens: frequent tokens that the head raises into the
            ten highest, from the embedding
        copying_share_first_layer [layer head], share of tokens: the same from the stream behind the
            first layer; NaN in layer 0
        copying_eigenvalues [layer head], score: eigenvalue score, from -1 to 1; NaN for a head that
            writes nothing
    """)
    measures = grid_measures("""
        copying from the first layer [copying_share_first_layer, unit], share of tokens: Bright: of
            most frequent tokens, as the first layer leaves them, the head raises the one that it
            looks at.
        copying from the embedding [copying_share, unit], share of tokens: Bright: of most frequent
            tokens, as the embedding leaves them, the head raises the one that it looks at.
        copying eigenvalues [copying_eigenvalues, cosine], sum of real parts / sum of sizes: Above
            0, the head raises embedded tokens that it looks at; below 0, it lowers them.
    """)
    precomputed = "experiments"
    ignores = Experiment.ignores | OWN_WINDOWS | KEPT_QUERIES
    uses = ("token embeddings", "predictions")
    long = True
    runs = "copying"

    def with_params(self, run: RunSpec, params: CopyingParams) -> RunSpec:
        """Return the run over the windows that tokens are taken from."""
        return run.model_copy(update={"windows": params.texts, "positions": (0,)})
