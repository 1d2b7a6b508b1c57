"""The code of `interventions` that runs the model; needs torch."""
