"""What runs the model for the questions of `interventions`. torch."""
