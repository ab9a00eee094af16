"""`python -m laworder` is the command `laworder`."""

from __future__ import annotations

import sys

from laworder.cli import main

if __name__ == "__main__":
    sys.exit(main())
