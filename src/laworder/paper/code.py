"""The code behind a command: every source file that its module leads to, hashed room by room."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from laworder.errors import UserError

NEUTRAL = frozenset({"_version", "console", "errors", "presets", "report", "assets"})
"""Rooms that cannot change a number: they speak and draw, or give defaults that stand resolved in the config."""
_NAME = re.compile(r"[a-z_]\w*(\.\w+)+", re.IGNORECASE)


@lru_cache(maxsize=64)
def code_hashes(module: str) -> dict[str, str]:
    """Room → SHA-256 over the sources in it that `module` can reach by its imports, in whatever function they stand."""
    top = module.partition(".")[0]
    by_room: dict[str, list[Path]] = {}
    for name, path in reach(module).items():
        parts = name.split(".")
        room = parts[1] if parts[0] == "laworder" and len(parts) > 1 else parts[0]
        if room not in NEUTRAL and (parts[0] != "laworder" or len(parts) > 1):
            by_room.setdefault(room, []).append(path)
    assert by_room, f"{top} has no sources"
    return {room: _hash(sorted(paths)) for room, paths in sorted(by_room.items())}


def _hash(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def reach(module: str) -> dict[str, Path]:
    """Modules of our own that `module` imports, directly or not, by name; itself included.

    Names that stand as text ("laworder.evaluation.fidelity") count as imports: tables of late imports hold such.
    """
    found: dict[str, Path] = {}
    queue = [module]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        path = locate(name)
        if path is None:
            continue
        found[name] = path
        queue += [n for n in _mentioned(path, name) if n.partition(".")[0] in ("laworder", module.partition(".")[0])]
    if not found:
        raise UserError(f"the module {module} of a command cannot be found")
    return found


@lru_cache(maxsize=512)
def locate(name: str) -> Path | None:
    """The source of a module, without importing it."""
    root, *rest = name.split(".")
    spec = find_spec(root)
    if spec is None or spec.origin is None:
        return None
    if not rest:
        return Path(spec.origin)
    folder = Path(spec.origin).parent.joinpath(*rest)
    if spec.submodule_search_locations is None:
        return None
    for path in (folder.with_suffix(".py"), folder / "__init__.py"):
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=512)
def _mentioned(path: Path, name: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            names.append(node.value)
    return tuple(n for n in dict.fromkeys(names) if n != name)
