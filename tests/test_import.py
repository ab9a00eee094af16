"""`import laworder` is instant and drags in none of the optional dependencies."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import laworder

EXTRAS = {
    *("accelerate", "diffusers", "matplotlib", "monai", "nibabel", "nnunetv2", "onnx", "onnxruntime", "openvino"),
    *("peft", "pydicom", "ray", "tifffile", "transformers"),
}
# What a script that uses the two modules and nothing else makes Python load.
USE = "import laworder; laworder.LAW; laworder.ORDER; laworder.create; laworder.UserError"
FRESH = """
import json, sys, time
start = time.perf_counter()
{code}
print(json.dumps([time.perf_counter() - start, sorted(sys.modules)]))
"""


def fresh(code: str) -> tuple[float, set[str]]:
    """Seconds that `code` takes in a process of its own, and the top-level modules that it loads."""
    done = subprocess.run([sys.executable, "-c", FRESH.format(code=code)], capture_output=True, text=True, check=True)
    seconds, modules = json.loads(done.stdout)
    return seconds, {name.partition(".")[0] for name in modules}


def test_import_takes_less_than_two_seconds() -> None:
    assert statistics.median(fresh("import laworder")[0] for _ in range(3)) < 2


def test_import_and_use_load_no_extra() -> None:
    _, modules = fresh(USE)
    assert "torch" in modules, "the use above reaches the tensor rooms"
    assert not modules & EXTRAS


def test_every_public_name_resolves() -> None:
    assert set(laworder.__all__) <= set(dir(laworder))
    for name in laworder.__all__:
        assert getattr(laworder, name) is not None
