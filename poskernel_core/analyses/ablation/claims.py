"""What ablated heads show."""

from poskernel_core.analyses.claims import has, number_of, param
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

BY = {
    "mean": "with the mean output",
    "zero": "without the output",
    "resample": "with another text's output",
    "kernel": "with the kernel alone",
}


def finding(result: Result) -> str:
    """Say what the model loses, as far as the interval is above or below 0."""
    if (
        not has(result, (), "loss_change")
        or not (change := number_of(result, "loss_change")).sign()
    ):
        return ""
    heads = len(set(str(param(result, "heads")).upper().replace(",", " ").split()))
    does, amount = "loses" if change.value > 0 else "gains", str(change).lstrip("−")
    by = BY[str(param(result, "by"))]
    return f"{by.capitalize()} of {counted(heads, 'head')}, the model {does} {amount} nats a token."
