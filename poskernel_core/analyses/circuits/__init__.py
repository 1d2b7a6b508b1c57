"""From heads to a circuit: who feeds whom, and how many heads are enough."""
