"""What the verdicts on all heads show."""

from collections import Counter

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

KINDS = ("Local", "Slow decay", "Uniform")
"""Beginnings of verdicts whose kind is resolved."""


def finding(result: Result) -> str:
    """Count the heads whose verdict names a kind; a verdict speaks for itself."""
    if "verdict" not in result.texts or result.axes["verdict"] != ("layer", "head"):
        return ""
    verdicts = [text for text in result.texts["verdict"].ravel() if not text.startswith("No head")]
    found = Counter(text.partition(":")[0].rstrip(".") for text in verdicts)
    if not any(found[kind] for kind in KINDS):
        return ""
    local, decays, uniform = (found[kind] for kind in KINDS)
    return (
        f"By the verdicts on {counted(len(verdicts), 'head')} the kernel is local in "
        f"{local}, slowly decaying in {decays} and uniform in {uniform}."
    )
