"""What runs the model for the questions of `bag`. torch."""
