"""Runs split into shards, computed on several devices or machines."""
