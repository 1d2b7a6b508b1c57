"""Content weights and softmax denominators of a fixed destination token in many contexts."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.common.views import StatisticsView, without
from poskernel_core.data import texts
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer

CHAPTERS = "bible"
"""The bundled corpus whose texts have names."""

MAX_BATCH = 32
KEYS = 2**12


@dataclass(frozen=True)
class LastQuery:
    """One layer's last query in a batch of texts, in float64.

    Attributes:
        layer: number of the layer.
        first: first key that counts: ``skip``, or the beginning of a sliding window.
        kernel: ``K(n, .)`` over the keys from ``first`` on, ``[kept, text, head, key]``; sums to 1.
        log_weight: content scores ``c(n, .)``, whose exponentials are the content weights.

    Along the axis ``kept``, mean keys are those of all groups, then those without each group.
    """

    layer: int
    first: int
    kernel: Tensor
    log_weight: Tensor

    @property
    def denominator(self) -> Tensor:
        """``Z_n = sum_j K(n,j) exp(c(n,j))``, ``[kept, text, head]``."""
        return torch.logsumexp(self.kernel.log() + self.log_weight, dim=-1).exp()


def token_counts(subject: ExperimentContext) -> np.ndarray:
    """Return how often each token occurs in the run's windows, ``[vocab]``."""
    return np.bincount(subject.windows.ravel(), minlength=subject.model.geometry.n_vocab)


def token_id(subject: ExperimentContext, text: str) -> int:
    """Return the id of a text that is one token."""
    if subject.single_id is None:
        raise BadRequest("A fixed token needs a tokenizer, and the model has none.")
    return subject.single_id(text)


def own_texts(subject: ExperimentContext, typed: str, items: str) -> dict[str, np.ndarray]:
    """Return token ids ``[pos]`` of the user's texts by title, cut to the windows' length.

    ``typed`` are texts separated by lines of dashes, ``items`` names of chapters separated by
    semicolons. Each text begins with the start token, if there is one.
    """
    documents = {text.strip(): text for text in re.split(r"(?m)^-{3,}\s*$", typed) if text.strip()}
    for item in filter(None, map(str.strip, items.split(";"))):
        documents[item] = chapter(item)
    return {title: token_ids(subject, text) for title, text in documents.items()}


def chapter(item: str) -> str:
    """Return the text of a named chapter."""
    known = texts.items(CHAPTERS)
    if item not in known:
        raise BadRequest(f"No chapter {item!r}: expected some of {', '.join(known)}.")
    return next(texts.documents(CorpusSpec(name=CHAPTERS, item=item)))


def token_ids(subject: ExperimentContext, text: str) -> np.ndarray:
    """Return the token ids ``[pos]`` of a text, start token first, cut to the windows' length."""
    if subject.encode is None:
        raise BadRequest("A text needs a tokenizer, and the model has none.")
    first, length = subject.windows[0, : int(subject.start_token)], subject.windows.shape[1]
    ids = subject.encode(text)
    while subject.start_token and ids[:1] == first.tolist():  # typed as well
        ids = ids[1:]
    return np.concatenate([first, ids])[:length].astype(np.int64)


def destination_windows(windows: np.ndarray, query: int, token: int) -> np.ndarray:
    """Return the windows up to position ``query``, which holds the destination token."""
    cut = windows[:, : query + 1].copy()
    cut[:, query] = token
    return cut


def last_rows(
    subject: ExperimentContext,
    windows: np.ndarray,
    skip: int,
    layers: Collection[int] | None = None,
    groups: int = 0,
) -> Iterator[tuple[range, list[LastQuery]]]:
    """Yield batches of texts: their numbers, and the row of their last query in every layer.

    The statistics provide the mean keys. ``layers`` are the layers to return; by default all. With
    ``groups``, rows are also computed with the mean keys of all but each group.
    """
    main = subject.main
    views = [main, *(without(main, group) for group in range(groups))]
    size = max(1, min(MAX_BATCH, KEYS // windows.shape[1]))
    for some, tokens in subject.batches(windows, size, total=0):
        seen = _LastQuery(views, skip, layers)
        last = -1 if layers is None else max(layers)
        subject.model.run(tokens, observers=[seen], samples=some, until=last)
        yield some, seen.rows


class _LastQuery(Observer):
    """Splits the last query's scores into position and content."""

    def __init__(
        self, views: Sequence[StatisticsView], skip: int, layers: Collection[int] | None
    ) -> None:
        self.rows: list[LastQuery] = []
        self._views, self._skip, self._layers = views, skip, layers

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if self._layers is not None and call.layer not in self._layers:
            return
        heads, length = call.q.shape[1:3]
        first = call.rule.first_visible(length - 1, self._skip)
        mean_keys = [view.layer(call.layer)["mean_keys"][:, first:length] for view in self._views]
        query, width = call.q[:, :, -1].cpu().double(), call.q.shape[-1]
        keys = repeat_kv(call.k[:, :, first:].cpu().double(), heads, 1)
        mean = repeat_kv(torch.from_numpy(np.stack(mean_keys)).double(), heads, 1)[..., :width]
        score, position = (
            call.rule.scores(products[..., None, :], [length - 1], range(first, length))[..., 0, :]
            for products in (
                (keys @ query[..., None])[..., 0],
                torch.einsum("thd,ghkd->gthk", query, mean),
            )
        )
        kernel = torch.softmax(position, dim=-1)
        self.rows.append(LastQuery(call.layer, first, kernel, score - position))
