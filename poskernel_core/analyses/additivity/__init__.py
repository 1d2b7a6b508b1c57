"""How far keys are the sum of a part of position and a part of content."""
