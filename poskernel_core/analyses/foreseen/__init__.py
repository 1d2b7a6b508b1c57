"""How much attention can be foreseen: the share that falls on keys chosen beforehand."""
