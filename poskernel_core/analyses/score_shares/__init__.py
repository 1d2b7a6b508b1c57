"""Score variance explained by position and by content."""
