"""The helix of positions, and how a head reads it."""
