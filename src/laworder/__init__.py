"""LAW and ORDER: synthesise and segment small lesions.

>>> from laworder import LAW, ORDER, create
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from laworder._version import __version__

if TYPE_CHECKING:
    from laworder.errors import UserError
    from laworder.law import LAW, ConstantWeight, Distillation, LawPlus, Loss, RatioPrior, Uniform
    from laworder.order import ORDER
    from laworder.segmenters import create, list_models

# Public name -> the module that defines it. Resolved on first use, so that `import laworder` stays instant.
_PUBLIC = {
    "LAW": "laworder.law",
    "ORDER": "laworder.order",
    "ConstantWeight": "laworder.law",
    "Distillation": "laworder.law",
    "LawPlus": "laworder.law",
    "Loss": "laworder.law",
    "RatioPrior": "laworder.law",
    "Uniform": "laworder.law",
    "UserError": "laworder.errors",
    "create": "laworder.segmenters",
    "list_models": "laworder.segmenters",
}

__all__ = [
    "LAW",
    "ORDER",
    "ConstantWeight",
    "Distillation",
    "LawPlus",
    "Loss",
    "RatioPrior",
    "Uniform",
    "UserError",
    "__version__",
    "create",
    "list_models",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'laworder' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
