"""Run conversations, and sum attention by class of query and key."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.conversations.spec import ConversationParams, Conversations
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import parse_json
from poskernel_core.common.result import TOKENS, Result
from poskernel_core.common.rounding import counted
from poskernel_core.data.conversations import conversations, read_turns
from poskernel_core.data.corpora import check_unchanged
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.models.chat import Rendered, render
from poskernel_core.models.tokenizers import NONE_THERE, Tokenizer, load_tokenizer
from poskernel_core.statistics.moments import Groups, replicated

QUERY_CLASSES = ("template", "user", "assistant", "first of a turn")
"""Classes of tokens, in the order of their codes."""
FIRST = "first key"
KEY_CLASSES = (*QUERY_CLASSES, FIRST)
"""The same for keys; the first key is a class of its own, because it may be a sink."""
TEMPLATE = 0
SAID = slice(1, None)


def shares(
    sums: Float[np.ndarray, "layer head query_class key_class"],
    visible: Float[np.ndarray, "layer query_class key_class"],
    queries: Float[np.ndarray, " query_class"],
) -> dict[str, np.ndarray]:
    """Return the mean attention by class, and that to the template.

    Args:
        sums: attention, summed over queries of a class and keys of a class.
        visible: visible keys of each class, each query's as a share of all it sees, summed alike.
        queries: number of queries of each class; a class without any gives NaN.
    """
    known = np.where(queries > 0, queries, np.nan)
    said = queries[SAID].sum() or np.nan
    return {
        "attention": sums / known[:, None],
        "visible_share": visible / known[:, None],
        "template_share": sums[..., SAID, TEMPLATE].sum(axis=-1) / said,
        "template_visible_share": visible[..., SAID, TEMPLATE].sum(axis=-1) / said,
    }


def attention_by_class(subject: ExperimentContext, params: ConversationParams) -> Result:
    """Run the conversations; see :class:`spec.Conversations`."""
    run, located = subject.run, subject.model.located
    if (tokenizer := load_tokenizer(located)) is None:
        raise BadRequest(NONE_THERE)
    assert run is not None
    one = params.text is not None
    turns = (
        [read_turns(parse_json(params.text))]
        if params.text is not None
        else conversations(run.corpus, run.seed, params.conversations)
    )
    check_unchanged(run.corpus)
    sums = [Groups(), Groups(), Groups()]
    tokens: list[int] = []
    classes: list[int] = []
    rendered = None
    for done, conversation in enumerate(turns):
        subject.progress(done, len(turns))
        rendered = render(located, conversation, params.date)
        tokens, classes = classified(tokenizer, rendered)
        if one and len(tokens) > run.context:
            raise BadRequest(
                f"The conversation has {counted(len(tokens), 'token')} with its template, the "
                f"context holds {run.context}: leave out turns, or choose a longer context."
            )
        tokens, classes = tokens[: run.context], classes[: run.context]
        if max(tokens) >= subject.model.geometry.n_vocab:
            raise BadRequest(
                f"The tokenizer of {located.spec.name!r} gives ids beyond the vocabulary of the "
                "model: it is another model's, put its own in its place."
            )
        seen = ClassSums(subject.model.geometry, classes)
        subject.model.run(torch.tensor([tokens], device="cpu"), observers=[seen], until=-1)
        for total, part in zip(sums, seen.sums(), strict=True):
            total.add(part[None], range(done, done + 1))
    subject.progress(len(turns), len(turns))
    texts: dict[str, Any] = {"query_classes": list(QUERY_CLASSES), "key_classes": list(KEY_CLASSES)}
    if one and rendered is not None:
        texts |= {"written": rendered.text, "classes": [KEY_CLASSES[code] for code in classes]}
    result = Conversations.estimated(
        subject,
        params,
        replicated(shares, *sums),
        provenance={"windows": len(turns), "context": run.context}
        | ({"template_date": params.date} if params.date else {})
        | ({"errors": "conversations"} if len(turns) > 1 else {}),
        texts=texts,
    )
    return result.with_text(TOKENS, subject.decode(tokens)) if one else result


def classified(tokenizer: Tokenizer, rendered: Rendered) -> tuple[list[int], list[int]]:
    """Return a conversation's token ids, and the class of each as an index into ``KEY_CLASSES``.

    A token belongs to the part in which it begins.
    """
    ids, places = tokenizer.encode_with_places(rendered.text)
    starts = np.array(places, dtype=np.int64)
    of_character = np.zeros(len(rendered.text) + 1, dtype=np.int64)
    said = [(first, last, role) for first, last, role in rendered.said if role in QUERY_CLASSES]
    for first, last, role in said:
        of_character[first:last] = QUERY_CLASSES.index(role)
    classes = of_character[starts]
    for first, last, _ in said:
        inside = np.flatnonzero((starts >= first) & (starts < last))
        classes[inside[:1]] = QUERY_CLASSES.index("first of a turn")
    classes[:1] = KEY_CLASSES.index(FIRST)
    return ids, classes.tolist()


class ClassSums(Observer):
    """Sums the attention of one text by class of query and key; its first token is no query."""

    wants_patterns = True

    def __init__(self, geometry: Any, classes: list[int]) -> None:
        self._classes = torch.tensor(classes, device="cpu")
        self._keys = torch.nn.functional.one_hot(self._classes, len(KEY_CLASSES)).double()
        size = geometry.n_layers, len(KEY_CLASSES), len(KEY_CLASSES)
        self._visible = torch.zeros(size, dtype=torch.float64, device="cpu")
        self._sums = torch.zeros(
            size[0], geometry.n_heads, *size[1:], dtype=torch.float64, device="cpu"
        )

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        places = torch.arange(len(self._classes), device="cpu")
        seen = (~call.rule.is_hidden(places[:, None], places)).double()
        rows = seen / seen.sum(dim=-1, keepdim=True)
        self._visible[call.layer].index_add_(0, self._classes, rows @ self._keys)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        pattern = block.pattern[0].cpu().double()
        rows, keys = pattern.shape[1:]
        some = pattern @ self._keys[block.first_key : block.first_key + keys]
        of_rows = self._classes[block.first_row : block.first_row + rows]
        self._sums[block.layer].index_add_(1, of_rows, some)

    def sums(self) -> list[Tensor]:
        """Return the sums of attention and of visible keys, and the number of queries, by class."""
        queries: Tensor = self._keys.sum(dim=0)
        kept = len(QUERY_CLASSES)
        return [
            self._sums[:, :, :kept],
            self._visible[:, :kept],
            queries[:kept],
        ]
