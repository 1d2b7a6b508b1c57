"""Attention in conversations by class of query and key: template, user, assistant."""

from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import Field, field_validator

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, Params
from poskernel_core.common.errors import BadRequest, NoNetwork
from poskernel_core.common.result import outputs
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, CorpusSpec, ModelSpec, RunSpec
from poskernel_core.data.conversations import as_text, check_corpus
from poskernel_core.data.made import RANDOM
from poskernel_core.models.catalog import find_again, is_local
from poskernel_core.models.chat import DATE, chat_template, lacking, writes_date

FEW = 8
"""Tokens of the window that stands in for the windows of a run, which are not read."""


class ConversationParams(Params):
    """Parameters of attention in conversations."""

    text: str | None = Field(
        None,
        max_length=MAX_TEXT_CHARACTERS,
        description="one conversation: a list of turns with role and content (JSON, or its file)",
    )
    conversations: int = Field(
        30, ge=1, le=1000, description="conversations of the corpus, at most"
    )

    date: str | None = Field(
        None,
        max_length=32,
        description=f"the day that a template writes, such as {DATE} (the default)",
        exclude_if=lambda date: date is None,  # so that keys of templates without a date stay
    )

    @field_validator("date")
    @classmethod
    def _as_day(cls, date: str | None) -> str | None:
        try:
            return None if date is None else datetime.fromisoformat(date).date().isoformat()
        except ValueError as error:
            raise ValueError(f"expected a day such as {DATE}, got {date!r}") from error

    @field_validator("text", mode="before")
    @classmethod
    def _as_json(cls, text: Any) -> Any:
        return None if text is None else as_text(text)


class Conversations(Experiment[ConversationParams]):
    r"""How a head attends in conversations: from and to the template, the user, the assistant.

    Formula: $\mathbb{E}_{n \in a} \sum_{i \in b} A(n,i)$ for queries of class $a$ and keys of class
    $b$. Classes are: tokens of the chat template, tokens that the user or the assistant says, and
    the first token that is said in a turn. The first key is a class of its own, so that a sink does
    not count as attention to the template. A row adds up to 1 (minus a learned sink's share).

    Choices: a conversation is written by the model's chat template, with whatever the template adds
    by itself, such as a usual system message; a start token comes only from the template. A date
    in it is that of one day, whenever it is computed. What a
    system message says counts as template. The first token is no query. The conversations are turns
    of the plays among the bundled texts, whose speakers take both roles in turn, or those of a file
    of messages; a longer one is cut at the context. All queries of a class weigh alike.

    Limits: the plays are not what the model was trained to talk about. Template tokens have other
    positions than what is said, so that a difference between classes may be one of position; the
    share of the visible keys says what a head would give that attends to all alike.

    Source: ours; "What does BERT look at?" (1906.04341) found attention that rests on delimiters.
    """

    name = "conversations"
    title = "Attention in conversations"
    noun_phrase = "the attention in conversations"
    error_counts = "conversations"
    values = outputs("""
        % attention [layer head query_class key_class], share of attention: mean attention of the
            queries of a class to all keys of a class
        % template_share [layer head], share of attention: attention of what is said to the
            template, the first key left out
        visible_share [layer query_class key_class], share of the visible keys: what attention to
            all visible keys alike would give
        template_visible_share [layer], share of the visible keys: the same for ``template_share``
    """)
    texts = (
        *outputs("""
            query_classes [query_class], class: the classes of queries
            key_classes [key_class], class: the classes of keys
        """),
        *outputs(
            """
            written, text: one conversation as the template writes it
            classes [pos], class: the class of each token of it
            """,
            optional=True,
        ),
    )
    precomputed = "experiments"
    ignores = Experiment.ignores | OWN_WINDOWS | {"start_token"}
    draws = True
    long = True
    runs = "attention_by_class"

    def completed(self, run: RunSpec, params: ConversationParams) -> ConversationParams:
        template = None
        with suppress(NoNetwork):
            template = chat_template(find_again(run.model), fetch=True)
        if template is None:  # not here
            return params
        date = params.date or DATE if writes_date(template) else None
        return params.model_copy(update={"date": date})

    def fits_model(self, model: ModelSpec) -> bool:
        return chat_template(find_again(model), fetch=True) is not None

    def with_params(self, run: RunSpec, params: ConversationParams) -> RunSpec:
        """Return the run of the conversations; one that is given depends on no corpus."""
        if is_local(run.model.name):
            located = find_again(run.model)
            if not located.away and chat_template(located) is None:
                raise BadRequest(lacking(run.model.name))
        if params.text is not None:
            return run.without({"corpus", "seed"}).model_copy(
                update={"windows": 1, "positions": (0,)}
            )
        check_corpus(run.corpus.name)
        return run.model_copy(update={"windows": params.conversations, "positions": (0,)})

    def reads(self, run: RunSpec, params: ConversationParams) -> RunSpec:
        """Return a window of random tokens: the conversations are written by the experiment."""
        drawn = CorpusSpec(name=RANDOM, fingerprint=RANDOM)
        few = min(FEW, run.context)
        return run.model_copy(update={"windows": 1, "corpus": drawn, "context": few})
