"""``python -m tagstream`` is the command ``tagstream``."""

import sys

from tagstream.cli import main

if __name__ == "__main__":
    sys.exit(main())
