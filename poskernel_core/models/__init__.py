"""Find models and read their metadata: names, sizes, fingerprints. Torch is not imported."""
