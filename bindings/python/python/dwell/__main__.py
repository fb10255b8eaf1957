"""``python -m dwell``."""

import sys

from dwell._cli import main

if __name__ == "__main__":
    sys.exit(main())
