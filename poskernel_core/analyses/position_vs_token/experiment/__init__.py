"""The code of `position_vs_token` that runs the model; needs torch."""
