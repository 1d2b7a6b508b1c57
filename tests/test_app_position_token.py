"""The page of position against token in a browser: every control, and what it changes."""
