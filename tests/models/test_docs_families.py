"""The table of supported families, held against those that are read and those that are tested."""

from poskernel_core.models.families import FAMILIES
from tests.support import ROOT, builders
from tests.support.builders.families import FAMILY_MODELS

MODELS = ROOT / "docs" / "reference" / "models.md"
OLD = {
    "gpt2": "scores scaled by layer",
    "gpt_neo": "unscaled scores, windows, an attention of its own",
    "opt": "positions from row 2 on",
    "llama": "grouped heads",
    "mistral": "grouped heads, windows",
    "qwen2": "grouped heads, biases",
    "qwen3": "grouped heads, normed queries and keys",
    "gpt_neox": "half of each head rotated, parallel blocks",
    "attn-only": "attention alone",
}
"""What the models of `tests/test_parity.py` have."""


def proved() -> dict[str, list[str]]:
    """Features that tests hold against transformers, by `model_type`."""
    found: dict[str, list[str]] = {kind: [words] for kind, words in OLD.items()}
    for one in FAMILY_MODELS.values():
        listed = found.setdefault(one.kind, [])
        listed += [part for part in one.features.split(", ") if part not in ", ".join(listed)]
    return found


def table() -> list[str]:
    """The lines of the table; the families without a test of their own come last, together."""
    tested = proved()
    lines = [
        "| family (`model_type`) | positions | held against transformers in tests |",
        "|---|---|---|",
    ]
    for kind, features in tested.items():
        lines.append(f"| `{kind}` | {FAMILIES[kind].scheme} | {', '.join(features)} |")
    others = ", ".join(f"`{kind}`" for kind in FAMILIES if kind not in tested)
    return [*lines, f"| {others} | | nothing: each model is proved when it is loaded |"]


def test_the_table_is_told():
    text = MODELS.read_text("utf-8")

    assert "\n".join(table()) in text


def test_what_reads_images_is_named():
    tested = ", ".join(f"`{one.within}`" for one in FAMILY_MODELS.values() if one.within)

    assert f"(tested: {tested})" in " ".join(MODELS.read_text("utf-8").split())


def test_old_families_have_their_builders():
    kinds = {name.replace("attn_only", "attn-only") for name in builders.ARCHITECTURES}

    assert OLD.keys() <= kinds
    assert all(one.kind in FAMILIES for one in FAMILY_MODELS.values())
