"""Models that are objects in the caller's process: ``pk.attach`` and ``pk.TrainingLog``."""
