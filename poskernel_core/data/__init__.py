"""Token windows from texts, or of repeated, doubled or random tokens. Torch is not imported."""
