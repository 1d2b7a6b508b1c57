"""What heads write: tokens raised and lowered, contributions to a logit, copying."""
