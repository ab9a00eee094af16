"""ORDER as it stands inside a LightningModule."""

from __future__ import annotations

from pathlib import Path

import lightning
import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from laworder import ORDER


class Lit(lightning.LightningModule):
    """What a user would write around ORDER."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ORDER()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, masks = batch
        return F.binary_cross_entropy_with_logits(self.model(images), masks)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # Lightning's own use of torch
@pytest.mark.filterwarnings("ignore:.*num_workers.*:UserWarning")  # advice on loaders
def test_a_trainer_steps_and_its_checkpoint_loads(tmp_path: Path) -> None:
    images = torch.randn(4, 3, 64, 64)
    loader = DataLoader(TensorDataset(images, (images[:, :1] > 0).float()), batch_size=2)
    lit = Lit()
    before = {name: p.detach().clone() for name, p in lit.model.named_parameters()}
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(lit, loader)
    assert trainer.global_step == 2
    moved = [name for name, p in lit.model.named_parameters() if not torch.equal(p, before[name])]
    assert len(moved) > 0.9 * len(before)
    trainer.save_checkpoint(tmp_path / "lit.ckpt", weights_only=True)
    state = torch.load(tmp_path / "lit.ckpt", weights_only=True)["state_dict"]
    again = Lit()
    again.load_state_dict(state)
    assert torch.equal(again.model.eval()(images), lit.model.eval()(images))
