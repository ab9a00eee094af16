"""Make `.venv-nnunet`, where the test of the nnU-Net trainer runs: `python tools/nnunet_env.py`.

nnU-Net needs torchvision, which laworder does not, and whose compiled operators must match torch's build to the
letter. So it gets an environment of its own. With the CPU build of torch those operators cannot load; nothing here
uses them, but torchvision refuses to import unless two of their schemas exist. A start-up hook declares those two
just before torchvision is imported, in this environment only. Run it again at will: a finished one is left alone.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENV = ROOT / ".venv-nnunet"
TORCH, TORCHVISION, NNUNET = "torch==2.13.0", "torchvision==0.28.0", "nnunetv2==2.8.1"
LAWORDER_NEEDS = ["safetensors", "huggingface_hub", "jaxtyping"]

SHIM = '''"""Declares two operators of torchvision just before it is imported (see tools/nnunet_env.py)."""

import sys

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class Declare:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for schema in SCHEMAS:
                self.library.define(schema)
            sys.torchvision_schemas = self.library
        return None


sys.meta_path.insert(0, Declare())
'''


def main() -> None:
    stamp, wanted = ENV / "laworder.stamp", "\n".join([TORCH, TORCHVISION, NNUNET, *LAWORDER_NEEDS, SHIM])
    if stamp.is_file() and stamp.read_text() == wanted:
        print(python())
        return
    if not python().is_file():
        venv.create(ENV, with_pip=True)
    constraints = ENV / "constraints.txt"
    constraints.write_text(f"{TORCH}\n{TORCHVISION}\n")
    install("-c", str(constraints), TORCH)
    install("--no-deps", TORCHVISION)
    install("-c", str(constraints), NNUNET, *LAWORDER_NEEDS)
    packages = site_packages()
    (packages / "torchvision_schemas.py").write_text(SHIM)
    (packages / "torchvision_schemas.pth").write_text("import torchvision_schemas\n")
    subprocess.run([python(), "-c", "import nnunetv2, torchvision"], check=True)
    stamp.write_text(wanted)
    print(python())


def python() -> Path:
    return ENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install(*what: str) -> None:
    subprocess.run([python(), "-m", "pip", "install", "--quiet", *what], check=True)


def site_packages() -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python(), "-c", code], check=True, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    main()
