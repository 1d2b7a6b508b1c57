"""Position's and content's share of the scores."""
