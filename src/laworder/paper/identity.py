"""What makes two jobs the same: settings, data, code and what they build upon; not where or how fast they ran."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from laworder.config import build, flatten, to_dict
from laworder.errors import UserError
from laworder.paper.code import code_hashes
from laworder.paper.fingerprints import files_hash, fingerprint
from laworder.paper.jobs import COMMANDS, OUT, Data, File, Job, Output

PLACE = frozenset({"out", "to", "device", "workers", "log", "cache", "cache_gb", "compile"})
"""Settings that say where or how fast. A command's own MAY_CHANGE adds to them."""


@dataclass(frozen=True)
class Identity:
    """config: every setting that counts, resolved; data: setting → hash; code: room → hash; needs: label → digest."""

    command: str
    config: Mapping[str, Any]
    data: Mapping[str, str]
    code: Mapping[str, str]
    needs: Mapping[str, str]

    @property
    def digest(self) -> str:
        """One hash over all of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, default=str).encode()).hexdigest()

    def changes(self, then: Mapping[str, Any]) -> list[str]:
        """In words, what differs from a written identity: why a cell is stale."""
        found: list[str] = []
        words = {"config": "setting {}: {} then, {} now", "data": "data of {} changed", "code": "code of {} changed"}
        now = asdict(self)
        for part, text in words.items():
            old, new = then.get(part, {}), now[part]
            for key in sorted({*old, *new}):
                if old.get(key) != new.get(key):
                    found.append(text.format(key, _shown(old.get(key)), _shown(new.get(key))))
        old, new = then.get("needs", {}), now["needs"]
        found += [f"{label} is another one" for label in sorted({*old, *new}) if old.get(label) != new.get(label)]
        return found


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)


@dataclass(frozen=True)
class Resolved:
    """A job with everything that was open about it.

    folder: its own, under the study's; values: its command's settings with real paths; needs: jobs before it
    """

    job: Job
    module: str
    identity: Identity
    folder: Path
    values: Mapping[str, Any]
    needs: tuple[Resolved, ...]

    @property
    def key(self) -> str:
        return f"{self.job.label} {self.identity.digest[:12]}"

    @property
    def out(self) -> Path:
        return self.folder / OUT

    def manifests(self) -> list[Path]:
        """Records and manifests of this job and of all before it, its own first; those that exist."""
        own = [self.folder / "job.json", self.out / "manifest.json"]
        found = [path for path in own if path.is_file()]
        found += [path for need in self.needs for path in need.manifests()]
        return list(dict.fromkeys(found))


class Resolver:
    """Turns jobs into resolved ones, each once.

    root: folder of the study; commands: command → module; device: given to every job that has such a setting
    """

    def __init__(self, root: Path, *, commands: Mapping[str, str] = COMMANDS, device: str | None = None) -> None:
        self.root, self.commands, self.device = root, dict(commands), device
        self._known: dict[str, Resolved] = {}

    def resolve(self, job: Job) -> Resolved:
        """The job's identity, its folder and its settings."""
        if job.label not in self._known:
            self._known[job.label] = self._resolve(job)
        found = self._known[job.label]
        assert dict(found.job.settings) == dict(job.settings), f"two jobs are called {job.label}"
        return found

    def every(self, jobs: list[Job]) -> list[Resolved]:
        """The jobs and all that they need, each once, needs first."""
        found: dict[str, Resolved] = {}

        def add(one: Resolved) -> None:
            for need in one.needs:
                add(need)
            found[one.key] = one

        for job in jobs:
            add(self.resolve(job))
        return list(found.values())

    def _resolve(self, job: Job) -> Resolved:
        if job.command not in self.commands:
            raise UserError(f"{job.label}: the command `{job.command}` does not exist in this version")
        module = self.commands[job.command]
        needs = {need.label: self.resolve(need) for need in job.needs()}
        values: dict[str, Any] = {}
        stands_for: dict[str, str] = {}
        data: dict[str, str] = {}
        for path, value in job.settings.items():
            values[path] = value
            if isinstance(value, Data):
                values[path], stands_for[path] = value.argument, "(data)"
                data[path] = fingerprint(value.argument)
            elif isinstance(value, File):
                values[path], stands_for[path] = value.argument, "(weights)"
                data[path] = files_hash(value.argument)
            elif isinstance(value, Output):
                made = needs[value.job.label]
                pool = f":{value.pool}" if value.pool else ""
                values[path] = str(made.out / value.inside) + pool
                stands_for[path] = f"(output of {made.job.label}){value.inside and '/' + value.inside}{pool}"
        identity = Identity(
            command=job.command,
            config={**self._counting(module, values), **stands_for},
            data=data,
            code=code_hashes(module),
            needs={label: need.identity.digest for label, need in needs.items()},
        )
        folder = self.root / "jobs" / slug(job.label) / identity.digest[:12]
        return Resolved(job, module, identity, folder, self._placed(module, values, folder), tuple(needs.values()))

    def _counting(self, module: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The resolved settings without those that say where or how fast."""
        loaded = importlib.import_module(module)
        place = PLACE | set(getattr(loaded, "MAY_CHANGE", ()))
        resolved = flatten(to_dict(build(loaded.Config, {"out": "run", **values} if _has_out(loaded) else values)))
        return {path: value for path, value in resolved.items() if path not in place}

    def _placed(self, module: str, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        loaded = importlib.import_module(module)
        known = loaded.Config.__dataclass_fields__
        # A command whose `out` is a file says which; the others write into the folder itself.
        placed = {**values, "out" if "out" in known else "to": str(folder / OUT / values.get("out", ""))}
        if self.device is not None and "device" in known:
            placed["device"] = self.device
        return placed


def _has_out(module: Any) -> bool:
    return "out" in module.Config.__dataclass_fields__


def slug(label: str) -> Path:
    """A label as folders: spaces and odd characters become dashes."""
    kept = "".join(c if c.isalnum() or c in "/._-" else "-" for c in label)
    return Path(*[part.strip(".-") or "x" for part in kept.split("/")])
