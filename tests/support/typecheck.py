"""The run-time check of every annotated argument and result, arrays' shapes included."""

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

NUMBERS = FrozenDict({float: float | int | np.floating})
"""Whole numbers and numbers of any precision pass where a float is expected, as in Python."""

checked = beartype(conf=BeartypeConf(hint_overrides=NUMBERS))
