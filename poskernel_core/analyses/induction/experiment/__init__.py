"""The code of `induction` that runs the model; needs torch."""
