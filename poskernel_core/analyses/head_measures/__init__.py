"""Every measure of every head, in one table."""
