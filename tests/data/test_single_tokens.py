"""Text that has to be one token: what is said where it is more."""

import pytest

from poskernel_core.common.errors import BadRequest
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("house", "is 2 tokens ('h', 'ouse'): mind the leading space, as in ' house'."),
        ("garden", "): choose another, and mind the leading space."),
        ("notatokenatall xx", "'all', …): choose another, and mind the leading space."),
    ],
)
def test_more_than_one(text, ends):
    tokenizer = load_tokenizer(locate("demo-gpt2"))
    with pytest.raises(BadRequest) as told:
        tokenizer.single_id(text)
    assert str(told.value).endswith(ends)
    assert len(tokenizer.encode(" house")) == 1
