"""One text: every head's attention, and scores split into position and content."""
