"""Benchmarks: ratios to the notebook way and other baselines, measured in the same run."""
