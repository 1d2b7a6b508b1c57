"""From a description of a run to its statistics: windows in, sums out, with checkpoints. torch."""
