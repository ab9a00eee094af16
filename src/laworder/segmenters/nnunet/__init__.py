"""ORDER inside nnU-Net v2: its planning, augmentation, loss, schedule and inference, with ORDER as the network.

nnU-Net finds trainers by name in the folders that its own variable `nnUNet_extTrainer` lists. In a shell:

    export nnUNet_extTrainer=$(python -c "from laworder.segmenters import nnunet; print(nnunet.trainer_folder())")
    nnUNetv2_train 1 2d 0 -tr nnUNetTrainerORDER

`-tr` is all that changes; `nnUNetv2_predict` needs the same `-tr` and the same variable.
"""

from __future__ import annotations

from pathlib import Path


def trainer_folder() -> Path:
    """The folder to name in `nnUNet_extTrainer`. It holds one module, because nnU-Net imports every one it meets."""
    return Path(__file__).resolve().parent
