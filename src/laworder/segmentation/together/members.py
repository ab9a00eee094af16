"""Which runs are trained together, and which settings that allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from laworder.errors import UserError
from laworder.segmentation.settings import TrainConfig


def members_of(config: TrainConfig) -> list[TrainConfig]:
    """The settings of each run: those of `seg train` with one seed and the folder `seed-N`."""
    if config.seeds is None:
        return [config]
    return [
        replace(config, seeds=None, seed=seed, out=config.out / f"seed-{seed}") for seed in parse_seeds(config.seeds)
    ]


def parse_seeds(text: str) -> list[int]:
    """`0-4`, `0,2,5` or one number."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or (dash and int(high) < int(low)):
            raise UserError(f"seeds: expected such as 0-4 or 0,2,5, not {text!r}")
        seeds += range(int(low), int(high or low) + 1)
    if len(set(seeds)) != len(seeds):
        raise UserError(f"seeds: {text!r} names one twice")
    return seeds


def check_settings(config: TrainConfig, world: int) -> None:
    """Refuse, by name, what only a run of its own can do."""
    asked: Mapping[str, bool] = {
        f"accumulate {config.accumulate}": config.accumulate > 1,
        f"patience {config.patience}": config.patience is not None,
        "channels_last": config.channels_last,
        f"{world} processes": world > 1,
    }
    refused = [name for name, given in asked.items() if given]
    if refused:
        raise UserError(
            f"seeds: several at once cannot be trained with {', '.join(refused)}; leave that out, or train each seed "
            "by itself with --seed"
        )


def check_model(model: nn.Module, name: str) -> None:
    """Refuse what cannot be stacked: layers that draw numbers, and those that torch cannot map over members."""
    refused = [m for m in model.modules() if isinstance(m, nn.GroupNorm) or (isinstance(m, _DropoutNd) and m.p > 0)]
    if refused:
        kinds = ", ".join(sorted({type(module).__name__ for module in refused}))
        raise UserError(
            f"seeds: {name} holds {kinds}, which several at once cannot share; train each seed by itself with --seed"
        )
