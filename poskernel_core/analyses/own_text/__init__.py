"""One text of the reader's: every head's attention on it, and its scores split in two."""
