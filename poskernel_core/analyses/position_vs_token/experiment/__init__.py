"""What runs the model for the questions of `position_vs_token`. torch."""
