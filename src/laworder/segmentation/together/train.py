"""Several seeds from pairs to run folders: one loop that steps them all, and for each a run's own bookkeeping."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from laworder.console import note
from laworder.data.cache import GB
from laworder.data.load import Arrays, load_arrays
from laworder.data.opening import open_source
from laworder.data.pairs import Source
from laworder.errors import UserError, nearest
from laworder.runs import Run
from laworder.runs.distributed import Place, processes
from laworder.runs.mirrors import mirrored
from laworder.segmentation.feed import HeldFeed, check_classes, check_lesions, fed_batches
from laworder.segmentation.parts import parts_of
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.task import SegmentTask, normalise
from laworder.segmentation.together.chunks import Member, advance
from laworder.segmentation.together.members import check_model, check_settings, members_of
from laworder.segmentation.together.stack import Stack
from laworder.segmentation.together.update import Update
from laworder.segmentation.train import (
    Trained,
    Validation,
    conclude,
    fresh,
    pick_device,
    plan_of,
    run_of,
    source_digest,
)
from laworder.segmenters import list_models

VALIDATED = 64
"""Images that are validated at once on a GPU, where a small network's passes are too short to be many."""


@dataclass
class _Seat:
    """One run on its way in: its folder, its task and who is held out."""

    config: TrainConfig
    run: Run
    task: SegmentTask
    held_out: Arrays
    member: Member


def train_together(config: TrainConfig) -> dict[TrainConfig, Trained]:
    """Train every seed of `config.seeds`, finished ones excepted; what each folder holds is a run of `seg train`.

    A seed whose numbers become non-finite stops as a run by itself would; the others go on, and then it is said.
    """
    members = members_of(config)
    if config.model not in list_models():
        raise UserError(f"unknown model {config.model!r}{nearest(config.model, list_models())}")
    with processes() as place:
        check_settings(config, place.world)
    device = pick_device(config.device)
    source = open_source(config.data, masks=config.masks, size=config.size, phantom=config.phantom)
    _check_room(config, source)
    pairs = load_arrays(source, config.size, config.channels)
    check_classes(pairs.masks, pairs.names, config.classes)
    digest = source_digest(source, Place(), device)
    failures: dict[Path, UserError] = {}
    with ExitStack() as exits:
        seats = [_seat(member, source, pairs, digest, device, _entering(exits, failures)) for member in members]
        live = [seat for seat in seats if not seat.run.finished]
        if live:
            _train(live, pairs, device)
        failures |= {seat.config.out: seat.member.failure for seat in live if seat.member.failure is not None}
        trained = {
            seat.config: conclude(seat.config, seat.run, seat.task, seat.held_out)
            for seat in seats
            if seat.member.failure is None
        }
    if failures:
        raise next(iter(failures.values()))
    return trained


Enter = Callable[[Run, TrainConfig], Run]


def _entering(exits: ExitStack, failures: Mapping[Path, UserError]) -> Enter:
    """How a run is entered so that it ends with its own failure, which is not that of the others."""

    def enter(run: Run, config: TrainConfig) -> Run:
        run.__enter__()

        def leave(kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
            own = failures.get(config.out) if error is None else None
            run.__exit__(*((kind, error, at) if own is None else (type(own), own, None)))

        exits.push(leave)
        exits.enter_context(mirrored(run, config.log))
        return run

    return enter


def _check_room(config: TrainConfig, source: Source) -> None:
    needed = len(source) * (config.channels + 1) * config.size**2 / GB
    if needed > config.cache_gb:
        raise UserError(
            f"seeds: several at once train from the device's memory, and all pairs take {needed:.2g} GB, more than "
            f"cache_gb {config.cache_gb:g}; raise that, or train each seed by itself with --seed"
        )


def _seat(config: TrainConfig, source: Source, pairs: Arrays, digest: str, device: torch.device, enter: Enter) -> _Seat:
    parts = parts_of(config, source)
    run = enter(run_of(config, parts, digest, device=device, place=Place()), config)
    if run.finished:
        note(f"{config.out} is finished; nothing to train")
    rows, kept = parts.indices("train", source.names), parts.indices("val", source.names)
    check_lesions(pairs.masks[torch.tensor(rows)])
    held_out = Arrays(pairs.images[kept], pairs.masks[kept], [pairs.names[i] for i in kept])
    names = [pairs.names[i] for i in rows]
    task = SegmentTask(fresh(config), config, device, names=names, place=Place())
    check_model(task.model, config.model)
    # The batches are asked for their number and their order only: all members share one copy of the pairs.
    batches = fed_batches(HeldFeed(pairs.images[:0], pairs.masks[:0], names, device), config.batch)
    validate = Validation(task, held_out, batch=config.batch if device.type == "cpu" else max(config.batch, VALIDATED))
    member = Member(run, task, batches, plan_of(config, batches, 1), validate, torch.tensor(rows))
    return _Seat(config, run, task, held_out, member)


def _train(seats: Sequence[_Seat], pairs: Arrays, device: torch.device) -> None:
    members = [seat.member for seat in seats]
    for member in members:
        member.begin()
    images, masks = pairs.images.to(device), pairs.masks.to(device)
    names, unused = _probe(seats[0].task, images[:2], masks[:2])
    stack = Stack([seat.task for seat in seats], unused)
    for index in range(len(seats)):
        stack.take(index)
    update = Update(stack, images, masks)
    total = max(member.loop.plan.steps for member in members)
    with seats[0].run.progress(total=total, initial=min(m.step for m in members), unit="step") as bar:
        while any(member.live for member in members):
            bar.update(advance(members, update, names))


def _probe(task: SegmentTask, images: torch.Tensor, masks: torch.Tensor) -> tuple[list[str], frozenset[str]]:
    """What the terms of the loss are called, and which parameters it does not reach; learnt from a copy."""
    twin = copy.copy(task)
    twin.model = copy.deepcopy(task.model)
    with torch.random.fork_rng(devices=[]):
        parts = twin.parts(normalise(images.float() / 255), masks)
    torch.stack(list(parts.values())).sum().backward()
    return list(parts), frozenset(name for name, p in twin.model.named_parameters() if p.grad is None)
