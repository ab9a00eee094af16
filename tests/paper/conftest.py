"""The toy command of this room's tests is a module: jobs and child processes import it by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
