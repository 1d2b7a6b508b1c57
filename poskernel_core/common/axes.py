"""The axis legend: one name per axis, used in every shape annotation.

======== =====================================================================
axis     meaning
======== =====================================================================
layer    layers of the model (``L``)
head     query heads of one layer (``H``)
kv       key heads of one layer (fewer than ``head`` for grouped-query heads)
query    query (destination) positions that a run records, ascending
sample   sampled queries, one per text, at each recorded position
key      key (source) positions ``0 .. T-1``
offset   offsets ``n - i`` between query and key, ``0 .. T-1``
pos      positions ``0 .. T-1``
d        head width
model    residual width (``D``)
text     windows of text in a batch
band     offsets ``n - i`` from ``-BAND`` to ``BAND``, future keys included
row      consecutive query positions inside one block of a pattern
component principal components, the largest variance first
step     checkpoints of a training run, by their steps
label    the possible values of a categorical value
measure  measures of heads, as the grid of all heads offers them
left_out leave-one-group-out replicates, by the group that is left out
pin      pinned heads, of any models and runs
missing  questions without a stored result
way      ways to choose keys beforehand
budget   numbers of keys that may be kept
query_class, key_class parts of a conversation: template, user, ...
replacement what takes a head's place
heads    numbers of heads that are replaced at once
word     tokens of the vocabulary that an answer names
rest     components that are neither heads nor MLPs
subset   sets of groups of texts, by their number of windows
answer   answers that a metric of a prediction is of
part     what of a head is put into another run: output, pattern, values
pair     pairs of prompts of a set
span     positions of all pairs of a set, or spans that all of them name
curve    what is done with the first heads of a ranking
first    numbers of heads of a ranking, from its first
half, place halves of a set of pairs, and ranks of heads
receiver, input, sender heads that edges lead into, their inputs, and where edges begin
======== =====================================================================

Analyses and statistics use NumPy arrays; torch tensors stay inside a pass.
"""

import numpy as np
from jaxtyping import Float, Int

PerHead = Float[np.ndarray, "layer head"]
Tokens = Int[np.ndarray, "text pos"]
PositionRows = Float[np.ndarray, "pos model"]
Components = Float[np.ndarray, "component model"]
