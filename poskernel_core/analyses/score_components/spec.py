"""Why a token looks at another: one score as a sum over pairs of components of the stream."""

from pydantic import Field

from poskernel_core.analyses.base import SkipParams
from poskernel_core.analyses.sources import OnText, TextParams
from poskernel_core.common.result import outputs


class ScoreComponentsParams(SkipParams, TextParams):
    """Parameters of the components of one token's scores."""

    head: str = Field(description="the head, such as L0H3")
    query: int = Field(-1, ge=-1, description="position of the query token; -1: the last")
    key: int | None = Field(
        None,
        ge=0,
        description="position of the key token; default: the one with most attention, key 0 aside",
    )
    other: int | None = Field(None, ge=0, description="position of a key to compare it with")


class ScoreComponents(OnText[ScoreComponentsParams]):
    r"""Why one token looks at another: its score, split by what query and key are made of.

    Formula: the residual stream before layer $l$ is a sum of components $x_c$: the embeddings, each
    earlier head and MLP, and the biases. With the text's own norms held fixed, a score is a sum
    over pairs, $s(n,i) = \text{scale} \sum_{a,b} q_{a,n} \cdot k_{b,i}$ with
    $q_{a,n} = R_n W_Q (\gamma P x_{a,n} / \sigma_n)$, $k_{b,i} = R_i W_K (\gamma P x_{b,i} /
    \sigma_i)$, and $W \beta + b$ as the component "constant". $P$ takes the mean away in LayerNorm,
    and $R$ is the rotation. The margins sum this table over the other token's components.

    Choices: heads have their value biases, MLPs their own; the biases of attention outputs are one
    component. What stands behind a block (a norm, a factor) belongs to the component, norms of
    queries and keys to the projection, all at the text's own scale. ALiBi's bias is a term by
    itself. With a soft cap, the scores are those before it. The mean of a row is over the visible
    $i \ge \text{skip}$ without key 0, whose score may lie far from all others. Products and sums
    are taken in float64.

    Limits: softmax ignores what all keys of a row have in common, so entries are best read less the
    row's mean, or against another key. Positive and negative entries mostly cancel: their absolute
    values add up to several times the score. A component is what wrote to the stream last, not
    where the information comes from. One text is one observation, without errors.

    Source: the split is exact algebra, without a learned dictionary; compare the QK circuit of "A
    Mathematical Framework for Transformer Circuits" (Elhage et al., 2021).
    """

    name = "score-components"
    title = "Why this token looks at that one"
    noun_phrase = "what makes the token's scores"
    values = (
        *outputs("""
            component_score [query_component key_component], nats: the score of the key by what the
                query and the key are made of
            mean_component_score [query_component key_component], nats: the same as a mean over the
                row
        """),
        *outputs(
            "other_component_score [query_component key_component], nats: the same of the other "
            "key, where one is chosen",
            optional=True,
        ),
        *outputs("""
            query_margin [query_component key], nats: sum over the key's components; with ALiBi's
                bias, sums to the score
            key_margin [key_component key], nats: sum over the query's components
        """),
        *outputs("alibi_bias [key], nats: ALiBi's bias, in models that have one", optional=True),
        *outputs("""
            score [key], nats: the real score, before a soft cap; NaN for hidden keys
            attention [key], share of attention: the real attention
            counted [key], 0 or 1: whether the row's mean includes the key
            chosen_query chosen_key, position: the two tokens
        """),
    )
    texts = outputs("""
        query_names [query_component], name: what the query is made of
        key_names [key_component], name: what the key is made of
    """)
    uses = ("token embeddings",)
    runs = "score_components"
