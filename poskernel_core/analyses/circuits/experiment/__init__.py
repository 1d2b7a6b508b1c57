"""Run the pairs of a set with heads, or their inputs, exchanged."""
