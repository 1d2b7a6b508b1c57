"""Which models there are and what their files say: names, sizes, fingerprints. No torch."""
