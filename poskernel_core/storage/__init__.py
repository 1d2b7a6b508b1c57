"""Content-addressed storage: the store, archives and shipped results."""
