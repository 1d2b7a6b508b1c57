"""A prompt, clean and changed; positions averaged in groups."""
