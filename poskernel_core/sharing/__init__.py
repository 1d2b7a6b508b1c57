"""Results as folders for others: a static site, a data set for the hub."""
