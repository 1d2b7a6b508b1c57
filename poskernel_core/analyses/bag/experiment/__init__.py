"""The code of `bag` that runs the model; needs torch."""
