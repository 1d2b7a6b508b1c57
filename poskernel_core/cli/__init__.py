"""The command line: ``poskernel``, or ``python -m poskernel_core``."""
