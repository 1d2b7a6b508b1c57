"""Results as oracles know them: the numbers of all texts, before they are corrected.

How these are corrected has its own tests, in `tests/common/test_jackknife.py`.
"""

from dataclasses import replace

import poskernel_core as pk


def of_all_texts(result):
    """Return a result whose values are its plug-ins."""
    return replace(result, values={**result.values, **result.plug_ins})


def analyse(name, gathered, **params):
    """As `pk.analyse`, with the numbers of all texts."""
    return of_all_texts(pk.analyse(name, gathered, **params))
