"""What runs the model for the questions of `induction`. torch."""
