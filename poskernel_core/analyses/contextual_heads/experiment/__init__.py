"""What runs the model for the questions of `contextual_heads`. torch."""
