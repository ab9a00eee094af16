"""The toy work of this room's tests is a module: workers in other processes import it by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
