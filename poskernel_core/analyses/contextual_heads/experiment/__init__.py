"""The code of `contextual_heads` that runs the model; needs torch."""
