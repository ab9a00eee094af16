"""Put the programs that our FID and KID are compared with into `.venv-nnunet`: `python tools/reference_env.py`.

torch-fidelity and pytorch-fid need torchvision, as nnU-Net does, so they live in its environment
(tools/nnunet_env.py says why there is one) and cost two small packages. pytorch-fid 0.3.0 calls `sqrtm(disp=)`, which
SciPy dropped in 1.18: hence the bound. Run it again at will: a finished one is left alone.
"""

from __future__ import annotations

import subprocess

import nnunet_env

REFERENCES = ["torch-fidelity==0.4.0", "pytorch-fid==0.3.0", "scipy<1.18"]


def main() -> None:
    stamp, wanted = nnunet_env.ENV / "references.stamp", "\n".join(REFERENCES)
    nnunet_env.main()  # prints the path of its Python
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    nnunet_env.install("--no-deps", *REFERENCES)
    subprocess.run([nnunet_env.python(), "-c", "import pytorch_fid.fid_score, torch_fidelity"], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
