"""What results about conversations show."""

import numpy as np

from poskernel_core.analyses.claims import number_of, who
from poskernel_core.common.result import Result


def finding(result: Result) -> str:
    """Say how much of a head's attention goes to the template, against the keys that it sees."""
    if result.axes.get("template_share") != () or "template_visible_share" not in result.values:
        return ""
    share = number_of(result, "template_share")
    even = float(np.asarray(result.values["template_visible_share"]))
    if np.isnan(share.value):
        return ""
    text = (
        f"In conversations {who(result)} gives {share} of the attention of what is said to the "
        f"chat template (the first key left out), which is {even:.2f} of the keys that it sees"
    )
    if (more := share.passes(even)) == "about":
        return f"{text}."
    return f"{text}: {'more' if more == 'yes' else 'less'} than its share."
