"""Independent components, computed in a separate process.

Importing scikit-learn loads pandas and pyarrow: a hundred megabytes that a process never frees.
``python -m poskernel_core.analyses.bag.independent SEED`` reads an array from standard input,
writes its rotation to standard output, and exits.
"""

import io
import subprocess
import sys
import warnings

import numpy as np
from jaxtyping import Float

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.common.modules import command, environment

ITERATIONS = 200


def rotation(
    white: Float[np.ndarray, "sample component"], seed: int
) -> Float[np.ndarray, "component component"]:
    """Return the rotation that makes the components of white data independent.

    Raises:
        ComputeFailed: the process could not be started, or failed.

    Source: FastICA with the log-cosh contrast (Hyvärinen 1999), as in scikit-learn.
    """
    sent = io.BytesIO()
    np.save(sent, white, allow_pickle=False)
    try:
        done = subprocess.run(
            command(__name__, str(seed)),
            input=sent.getvalue(),
            stdout=subprocess.PIPE,
            env=environment(),
            check=False,
        )
    except OSError as error:
        raise ComputeFailed(
            f"The search for independent components could not be started ({error.strerror}): ask "
            "again when the machine is less busy."
        ) from error
    if done.returncode != 0:
        raise ComputeFailed(
            "The search for independent components stopped before it was done (out of memory, or "
            "killed): ask again."
        )
    return np.asarray(np.load(io.BytesIO(done.stdout), allow_pickle=False))


def found_here(
    white: Float[np.ndarray, "sample component"], seed: int
) -> Float[np.ndarray, "component component"]:
    """Return the same as :func:`rotation`, computed in this process."""
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    model = FastICA(whiten=False, max_iter=ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last estimate is good enough
        model.fit(white)
    return np.asarray(model.components_)


def main() -> None:
    """Read one array from standard input, and write its rotation to standard output."""
    white = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    np.save(sys.stdout.buffer, found_here(white, int(sys.argv[1])), allow_pickle=False)


if __name__ == "__main__":
    main()
