"""The engine: finds or computes the results of requests, in a worker process."""
