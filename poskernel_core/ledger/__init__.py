"""Published figures compared with what this machine computes."""
