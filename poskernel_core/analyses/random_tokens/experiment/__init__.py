"""The code of `random_tokens` that runs the model; needs torch."""
