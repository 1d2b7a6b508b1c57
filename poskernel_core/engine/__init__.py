"""From a request to its result: the front that pages ask, and the worker process that answers."""
