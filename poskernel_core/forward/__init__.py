"""One forward pass: loading a model, observing and editing it, reading it out. torch."""
