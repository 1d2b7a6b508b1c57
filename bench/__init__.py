"""Benchmarks: ratios against the notebook way, measured in the same run."""
