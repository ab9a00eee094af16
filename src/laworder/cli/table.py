"""Every command, in the order in which a newcomer meets them.

A command is a module with three names: `Config` (a frozen dataclass), `plan(config)` (what would be done, in words)
and `run(config)` (do it; an int is the exit code). Nothing is imported before its command is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from laworder.errors import UserError, nearest


class CommandModule(Protocol):
    Config: type[Any]

    def plan(self, config: Any) -> Iterable[str]: ...

    def run(self, config: Any) -> int | None: ...


@dataclass(frozen=True)
class Command:
    name: str
    section: str
    summary: str
    module: str

    def load(self) -> CommandModule:
        return cast("CommandModule", importlib.import_module(self.module))


COMMANDS: tuple[Command, ...] = (
    Command("demo", "Start here", "the whole story on drawn data, in minutes, ending in a report", "laworder.demo"),
    Command(
        "data prepare", "Data", "a download or a folder, read once into one layout", "laworder.data.commands.prepare"
    ),
    Command(
        "data audit",
        "Data",
        "what would ruin a study: leaks, odd masks, lesions that vanish",
        "laworder.data.commands.audit",
    ),
    Command("data split", "Data", "who trains and who is held out, written down", "laworder.data.commands.split"),
    Command(
        "synth train", "Synthesise", "train a diffusion model that draws images for masks", "laworder.diffusion.train"
    ),
    Command(
        "synth train-vae",
        "Synthesise",
        "fit the small autoencoder whose latents backbone small works on",
        "laworder.diffusion.train_vae",
    ),
    Command(
        "synth sample",
        "Synthesise",
        "draw images for masks, as prepared data that says where each came from",
        "laworder.diffusion.sampling.command",
    ),
    Command(
        "synth inspect",
        "Synthesise",
        "what a model was trained on and how; sheets of mask, image and overlay",
        "laworder.diffusion.inspection.command",
    ),
    Command(
        "seg train",
        "Segment",
        "train a segmenter on a folder of images and masks",
        "laworder.segmentation.train_command",
    ),
    Command(
        "seg evaluate",
        "Segment",
        "judge a segmenter, or two against each other, on images and masks",
        "laworder.segmentation.evaluate_command",
    ),
    Command(
        "seg predict",
        "Segment",
        "masks for pictures, folders, volumes and large TIFFs",
        "laworder.segmentation.predict_command",
    ),
    Command(
        "seg export",
        "Segment",
        "a segmenter as one file for ONNX Runtime, OpenVINO or PyTorch, compared before it is kept",
        "laworder.segmentation.export.command",
    ),
    Command(
        "seg bench",
        "Segment",
        "PyTorch, ONNX Runtime and OpenVINO timed side by side on this machine",
        "laworder.segmentation.bench.command",
    ),
    Command(
        "evaluate",
        "Judge the synthesis",
        "generated pairs against real ones: FID, CLIP-I, mask recovery, copies, realism",
        "laworder.evaluation.command",
    ),
    Command(
        "evaluate downstream",
        "Judge the synthesis",
        "is a segmenter better with synthetic images added? Seeds, doses, paired tests",
        "laworder.evaluation.downstream_command",
    ),
    Command("paper list", "The paper's study", "tables and figures that can be made", "laworder.paper.commands.list_"),
    Command(
        "paper plan",
        "The paper's study",
        "the runs behind a table: done, stale and why, missing; how long they take",
        "laworder.paper.commands.plan",
    ),
    Command(
        "paper run",
        "The paper's study",
        "do what is missing, here, on a Ray cluster or one share of it",
        "laworder.paper.commands.run",
    ),
    Command(
        "paper table",
        "The paper's study",
        "ours beside the paper's: Markdown, LaTeX, CSV",
        "laworder.paper.commands.table",
    ),
    Command(
        "paper figure", "The paper's study", "a figure from the runs that are done", "laworder.paper.commands.figure"
    ),
    Command("paper report", "The paper's study", "the whole study as one page", "laworder.paper.commands.report"),
    Command("models", "Look things up", "every segmenter with its size and cost", "laworder.segmenters.command"),
    Command("reproduce", "Look things up", "run a finished run again and compare", "laworder.cli.reproduce"),
)


def find(words: Sequence[str], commands: Sequence[Command] = COMMANDS) -> tuple[Command, list[str]]:
    """The command that the first one or two words name, and the words behind it."""
    by_name = {command.name: command for command in commands}
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in by_name:
            return by_name[name], list(words[length:])
    members = [name.split(" ", 1)[1] for name in by_name if name.startswith(words[0] + " ")]
    if not members:
        raise UserError(f"unknown command {words[0]!r}{nearest(words[0], by_name)}")
    if len(words) == 1 or words[1].startswith("-"):
        raise UserError(f"`laworder {words[0]}` needs one of: {', '.join(members)}")
    raise UserError(f"unknown command '{words[0]} {words[1]}'{nearest(words[1], members)}")
