"""A plugin for PosKernel: a question, a measure for the grid of all heads, and a page."""
