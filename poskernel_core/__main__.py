"""``python -m poskernel_core``."""

import sys

from poskernel_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
