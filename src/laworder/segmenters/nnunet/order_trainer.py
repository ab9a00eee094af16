"""The trainer class that nnU-Net v2 (2.8 and later) loads by name; see the package's docstring."""

from __future__ import annotations

from typing import Any

import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer  # pyright: ignore[reportMissingImports]

from laworder import ORDER


class nnUNetTrainerORDER(nnUNetTrainer):  # noqa: N801 nnU-Net looks trainers up by names of this form
    """nnU-Net's recipe as it is, deep supervision aside (ORDER has one output); 2-D and 3-D after the plans."""

    def __init__(
        self,
        plans: dict[str, Any],
        configuration: str,
        fold: int,
        dataset_json: dict[str, Any],
        device: torch.device = torch.device("cuda"),  # noqa: B008 nnU-Net reads this very signature
    ) -> None:
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.enable_deep_supervision = False

    @staticmethod
    def build_network_architecture(
        plans_manager: Any,  # noqa: ARG004 nnU-Net's signature; the plans' own network is not used
        configuration_manager: Any,
        num_input_channels: int,
        num_output_channels: int,
        enable_deep_supervision: bool = False,  # noqa: ARG004
    ) -> ORDER:
        """ORDER with one logit map per segmentation head of the dataset (background included), any patch size."""
        dims = len(configuration_manager.patch_size)
        return ORDER(in_channels=num_input_channels, classes=num_output_channels, spatial_dims=dims)

    def set_deep_supervision_enabled(self, enabled: bool) -> None:
        """Nothing to switch: ORDER has one output in training and in inference."""
