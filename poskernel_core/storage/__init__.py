"""Bytes under the hash of what determines them: the store, archives, what is shipped."""
