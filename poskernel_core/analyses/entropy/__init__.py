"""How spread out attention is."""
