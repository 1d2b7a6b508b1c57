"""Quality of the bag's prediction of its heads' output, by position."""

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.bag.experiment.bag import Bag
from poskernel_core.analyses.bag.experiment.predicted import KERNELS, SCALES, joint
from poskernel_core.statistics.moments import Groups, Numbers, replicated

VARIANTS = tuple(f"{kernel} kernel, scale by {by}".replace("by mean", "of all")
                 for kernel in KERNELS for by in SCALES)  # fmt: skip


class Quality:
    """Sums over windows of the heads' true and predicted joint output, at a few positions.

    Attributes:
        places: these positions, evenly spaced.
    """

    def __init__(self, bag: Bag, length: int, places: int) -> None:
        self._bag = bag
        self.places = np.unique(np.linspace(bag.start, length - 1, places).round().astype(int))
        self._true, self._scalars, self._predicted = Groups(), Groups(), Groups()

    def add(self, tokens: Tensor, heads: Tensor, text: int) -> None:
        """Add a text: its tokens ``[pos]`` and the true ``heads [pos, head, d]``."""
        bag, here, some = self._bag, torch.from_numpy(self.places), range(text, text + 1)
        chosen = list(bag.heads)
        true = torch.einsum("nhd,hdm->nm", heads[here][:, chosen], bag.layer.w_o[chosen]).double()
        pairs = [joint(bag, tokens, k, by, here) for k in KERNELS for by in SCALES]
        found = [(written + fixed).double() for written, fixed in pairs]
        numbers = [
            (torch.cosine_similarity(true, each, dim=-1), ((true - each) ** 2).sum(dim=-1))
            for each in found
        ]
        squares = (true**2).sum(dim=-1)
        rows = [torch.stack([cosine, error, squares]) for cosine, error in numbers]
        self._scalars.add(torch.stack(rows, dim=1)[None], some)
        self._true.add(true[None], some)
        self._predicted.add(torch.stack(found)[None], some)

    def numbers(self) -> tuple[Numbers, list[Numbers]]:
        """Return values ``[variant, query]``, and their leave-one-group-out replicates."""
        return replicated(_numbers, self._scalars, self._true, self._predicted)


def _numbers(scalars: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> Numbers:
    """Return the numbers from means over windows.

    ``scalars [3, variant, query]`` are cosine, squared error and squared length; ``true [query,
    model]`` and ``predicted [variant, query, model]`` are outputs. Centring both outputs lowers the
    squared error by the squared difference of the means.
    """
    cosine, error, squares = scalars
    variance = squares - (true**2).sum(axis=-1)
    variance = np.where(variance > 1e-9 * squares, variance, np.nan)
    shift = ((true - predicted) ** 2).sum(axis=-1)
    return {
        "bag_cosine": cosine,
        "bag_r2": 1 - error / variance,
        "bag_centred_r2": 1 - (error - shift) / variance,
    }
