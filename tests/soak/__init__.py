"""Long trials for ``make soak``, which pytest does not collect."""
