"""What a model loses if heads attend by position alone."""
