"""Short names of models resolve as in transformer_lens, without importing it."""

import pytest

from poskernel_core.common.errors import NoNetwork
from poskernel_core.models import catalog
from poskernel_core.models.catalog import official_name


def test_short_names_are_those_of_transformer_lens():
    from transformer_lens.tools.model_registry.registry_io import load_model_aliases

    table = load_model_aliases()
    assert "gpt2-small" in table["gpt2"]
    for name, aliases in table.items():
        for alias in aliases:
            assert name == official_name(alias) == official_name(alias.upper())


@pytest.mark.parametrize("name", ["demo-gpt2", "gpt2", "somebody/some-model", ""])
def test_other_names_stay(name):
    assert name == official_name(name)


def test_a_short_name_is_looked_for_under_the_long_one(monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    with pytest.raises(NoNetwork, match="NeelNanda/Attn_Only_2L512W_C4_Code"):
        catalog.locate("attn-only-2l")
