"""How far keys are the sum of a position part and a content part."""
