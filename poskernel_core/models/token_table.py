"""What a tokenizer knows of each token id, as arrays that a statistic can look ids up in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from poskernel_core.models.tokenizers import Tokenizer

SPACES = ("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "\N{LOWER ONE EIGHTH BLOCK}")
"""What stands for a leading space in the vocabularies of byte-level BPE and of SentencePiece."""

PerToken = Bool[np.ndarray, " vocabulary"]


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Properties of every token id ``0 .. vocabulary - 1``; of ids without text all are false.

    Attributes:
        begins_word: white space, then a letter or digit.
        punctuation: no letter, no digit, and not white space alone.
        number: digits alone, white space aside.
        special: what the tokenizer adds, such as the start token.
    """

    begins_word: PerToken
    punctuation: PerToken
    number: PerToken
    special: PerToken


def token_table(tokenizer: Tokenizer, vocabulary: int) -> TokenTable:
    """Return the table of a model's tokenizer: a second for 250,000 ids."""
    ordinary = tokenizer.ordinary_ids(vocabulary)
    texts, spaced = [""] * vocabulary, np.zeros(vocabulary, dtype=bool)
    for number, text in zip(ordinary, tokenizer.decode_each(ordinary), strict=True):
        texts[number] = text.strip()
        marked = str(tokenizer.backend.id_to_token(number)).startswith(SPACES)
        spaced[number] = marked or text[:1].isspace()
    special = np.ones(vocabulary, dtype=bool)
    special[ordinary] = False
    first = np.array([text[:1].isalnum() for text in texts], dtype=bool)
    wordless = [bool(text) and not any(map(str.isalnum, text)) for text in texts]
    return TokenTable(
        begins_word=spaced & first,
        punctuation=np.array(wordless, dtype=bool),
        number=np.array([text.isdecimal() for text in texts], dtype=bool),
        special=special,
    )
