"""One head's softmax denominator along positions, and which tokens it weights up and down."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import Experiment, Progress, Result, SkipParams, Subject
from poskernel_core.analyses.contextual import check_query
from poskernel_core.config import MAX_TEXT_CHARACTERS, RunSpec
from poskernel_core.errors import BadRequest
from poskernel_core.views import StatisticsView

__all__ = ["Denominators", "DenominatorsParams", "TokenWeights", "TokenWeightsParams"]


class CellParams(SkipParams):
    """Parameters that name a head and the destination token."""

    cell: str = Field("L0H0", description="the head, such as L0H3")
    token: str = Field(" the", min_length=1, max_length=64, description="the destination token")


class DenominatorsParams(CellParams):
    """Parameters of the denominator along positions."""

    places: int = Field(16, ge=2, le=256, description="positions, evenly spaced")
    contexts: int = Field(16, ge=2, le=1000, description="texts that the token is put into")
    own: str = Field(
        "",
        max_length=MAX_TEXT_CHARACTERS,
        description="texts of your own, divided by lines of three dashes",
    )
    items: str = Field(
        "", max_length=1000, description="named texts, such as 'Genesis 24; Exodus 12'"
    )


class Denominators(Experiment):
    r"""One head's denominator of a fixed token against position, for several texts.

    * ``denominator [text, query]``: ``Z_n`` with the token put at position ``n`` of each text.
    * ``own_denominator [own_text, query]``: the same in the reader's own texts and named chapters,
      NaN beyond their ends.
    * ``mean [query]``, ``spread [query]``: mean over texts, and standard deviation relative to it.
    * ``predicted_spread [query]``: what the independent model expects.
    * ``etc [query]``: effective token count of the token's mean kernel.

    Formula: $Z_n = \sum_j K(n,j)\, e^{c(n,j)}$;
    $\mathrm{Var}[Z_n] = \mathrm{Var}[w] / \mathrm{ETC}(n)$ for independent content.

    Choices: as for contextual heads; positions are evenly spaced, the last of the context among
    them. Own texts are drawn beside and are no part of mean and spread.

    Limits: one token at a time; 16 texts give a spread to about a fifth.

    Source: "Contextual attention heads in the first layer of GPT-2".
    """

    name = "denominators"
    title = "Denominators along positions"
    spoken = "softmax denominators along positions"
    params = DenominatorsParams
    long = True

    def settled(self, run: RunSpec, params: DenominatorsParams) -> RunSpec:
        """Return the run in single precision.

        Raises:
            BadRequest: the context ends with the skipped keys.
        """
        if run.context < params.skip + 3:
            raise BadRequest(
                f"Expected a context of {params.skip + 3} tokens or more behind {params.skip} "
                f"skipped keys, got {run.context}: ask for a longer one, or skip fewer."
            )
        return run.model_copy(update={"dtype": "float32"})

    def needs(self, run: RunSpec, params: DenominatorsParams) -> Mapping[str, RunSpec]:
        """Return the run, for its mean keys."""
        return {"main": run}

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: DenominatorsParams,
        progress: Progress,
    ) -> Result:
        """Run every text at every position."""
        from poskernel_core.experiments.denominators import denominators

        return denominators(subject, statistics["main"], params, progress)


class TokenWeightsParams(CellParams):
    """Parameters of the weights of tokens."""

    query: int = Field(ge=1, description="position of the destination token")
    fewest: int = Field(
        3, ge=0, le=1_000_000, description="times that a token must occur in the texts"
    )
    listed: int = Field(40, ge=1, le=1000, description="tokens listed at either end")
    contexts: int = Field(128, ge=2, le=10_000, description="texts that are read (later layers)")


class TokenWeights(Experiment):
    r"""Which tokens a head weights up and down, for a fixed destination token.

    * ``log_weight [token]``: mean content score of each token, in nats; its exponential is the
      factor by which content changes the token's attention.
    * ``count [token]``: how often the token was seen: in layer 0 in all texts of the run, in later
      layers in those that were read.

    Formula: $c(n,i) = \text{scale}\; q_n \cdot (k_i - m_i)$, mean over keys $i$ that hold the
    token.

    Choices: in layer 0, whose keys depend on token and position alone, every token is put to four
    positions that share the mass of the head's kernel equally; the error is over them. In later
    layers, where context matters, scores are means over the places where the token stands in the
    texts. Tokens rarer in the texts than ``fewest`` are left out, special ones always.

    Limits: a mean over contexts hides that a later head may weight a token by its context.

    Source: "Contextual attention heads in the first layer of GPT-2" (keywords and stop words).
    """

    name = "token-weights"
    uses = ("token embeddings",)
    title = "Content weights of tokens"
    spoken = "how the head weights tokens"
    params = TokenWeightsParams
    long = True

    def settled(self, run: RunSpec, params: TokenWeightsParams) -> RunSpec:
        """Return the run in single precision.

        Raises:
            BadRequest: the position is outside the context, or nothing visible is left.
        """
        check_query(run, params.query, params.skip)
        return run.model_copy(update={"dtype": "float32"})

    def needs(self, run: RunSpec, params: TokenWeightsParams) -> Mapping[str, RunSpec]:
        """Return the run, for its mean keys."""
        return {"main": run}

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: TokenWeightsParams,
        progress: Progress,
    ) -> Result:
        """Run the windows."""
        from poskernel_core.experiments.token_weights import token_weights

        return token_weights(subject, statistics["main"], params, progress)
