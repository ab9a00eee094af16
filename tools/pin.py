"""Write constraints.txt anew: one exact version of everything that any extra installs, for Python 3.10 and later.

    .venv/bin/python -m pip install uv
    .venv/bin/python tools/pin.py             # adds what is missing, moves nothing else
    .venv/bin/python tools/pin.py --upgrade   # takes the newest of everything

uv resolves once for all systems and Python versions; the result holds markers where they differ. What only torch's CUDA
build brings is left out: torch pins that itself, and a torch that the user already has may bring another.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("all", "dev", "nnunet")
LEFT_TO_TORCH = re.compile(r"(nvidia|cuda|triton|setuptools|torchvision)\b")
TOOLS = ("uv",)  # what tools/bootstrap.py itself may install
HEADER = """\
# Exact versions for every extra, on Python 3.10 and later. Written by tools/pin.py, used by tools/bootstrap.py.
# By hand: pip install -c constraints.txt -e '.[test]'
"""


def resolve(previous: str, *, upgrade: bool) -> str:
    """What uv resolves; lines of `previous` are kept wherever they still fit."""
    with tempfile.TemporaryDirectory() as folder:
        out, tools = Path(folder, "out.txt"), Path(folder, "tools.in")
        out.write_text(previous, encoding="utf-8")
        tools.write_text("\n".join(TOOLS), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.10"]
        command += ["--no-header", "--no-annotate", "--output-file", str(out), "pyproject.toml", str(tools)]
        command += [f"--extra={name}" for name in EXTRAS] + ["--upgrade"] * upgrade
        subprocess.run(command, cwd=ROOT, check=True)
        return out.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions instead of keeping ours")
    upgrade = parser.parse_args().upgrade
    target = ROOT / "constraints.txt"
    lines = resolve(target.read_text(encoding="utf-8") if target.exists() else "", upgrade=upgrade).splitlines()
    kept = [line for line in lines if not LEFT_TO_TORCH.match(line)]
    target.write_text(HEADER + "\n".join(kept) + "\n", encoding="utf-8")
    print(f"{target.name}: {len(kept)} lines")


if __name__ == "__main__":
    main()
