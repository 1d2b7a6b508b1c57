"""Token windows: from texts, made of repeated or doubled tokens, or of random ones. No torch."""
