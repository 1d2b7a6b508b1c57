"""What decides the scores of rotary heads: place, content, or both together."""
