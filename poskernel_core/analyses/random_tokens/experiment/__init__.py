"""What runs the model for the questions of `random_tokens`. torch."""
