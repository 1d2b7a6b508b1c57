"""Attention sinks: how much attention the first keys take."""
