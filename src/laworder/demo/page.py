"""The demo's page: words first, then data, weights, synthetic images, what the judge says, and whether they help."""

from __future__ import annotations

import base64
import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laworder.data.load import load_arrays
from laworder.data.prepared import PreparedSource
from laworder.demo.distance import distances
from laworder.demo.pictures import data_sheet, law_weights
from laworder.demo.story import OBJECTIVES, SIZE, Story
from laworder.diffusion.looks import FOLDER
from laworder.diffusion.score import as_text
from laworder.paper.divide import HELD_OUT, TRAIN
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.jobs import Job
from laworder.paper.page import Shown, StudyPage
from laworder.paper.store import read_record, result
from laworder.segmentation.report import size_chart

SHOWN = 7


@dataclass(frozen=True)
class Found:
    """What the runs of a story wrote."""

    story: Story
    resolver: Resolver

    def of(self, job: Job) -> Resolved:
        return self.resolver.resolve(job)

    def scores(self, job: Job) -> dict[str, Any]:
        """What `seg evaluate` says of its model."""
        return result(self.of(job), "evaluation.json")["model"]

    def per_image(self, job: Job) -> tuple[Tensor, Tensor]:
        """Dice and lesion area of each image with a lesion."""
        with (self.of(job).out / "images.csv").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if float(row["lesion_fraction"]) > 0]
        return torch.tensor([float(row["dice"]) for row in rows]), torch.tensor(
            [float(row["lesion_fraction"]) for row in rows]
        )

    def training(self, objective: str) -> dict[str, Any]:
        """What `synth train` says of itself."""
        return result(self.of(getattr(self.story, objective)), "training.json")

    def pool(self, name: str) -> PreparedSource:
        return PreparedSource(self.of(self.story.pairs).out, name)


def report(story: Story, resolver: Resolver) -> StudyPage:
    """The whole page, from what is on the disk."""
    found = Found(story, resolver)
    page = StudyPage(title="laworder on drawn data", summary=summary(found))
    pool = found.pool(HELD_OUT)
    held_out = load_arrays(pool, SIZE, 3, range(len(pool)), progress=False)
    page.section("The data")
    page.text(
        f"{len(pool) + len(found.pool(TRAIN))} pictures of {SIZE}×{SIZE} pixels, in the manner of an MR of the head: "
        "lesions of 0.2 to 15 % of the picture, some with something lesion-like beside them that is none. What the "
        "audit says of them:"
    )
    page.findings(result(found.of(story.audit), "audit.json")["findings"])
    data_sheet(page, held_out)
    page.section("Where LAW spends the denoising loss")
    law_weights(page, held_out)
    _deltas(page, found)
    page.section("Synthetic images for the same masks")
    page.text(*(f"{name}: {found.training(key)['verdict']}" for key, name in OBJECTIVES.items()))
    page.overlays(_samples(found), caption="Each column has one mask. The slider shows and hides the masks.")
    page.section("Are they any good?")
    _judged(page, found)
    page.section("Do they help?")
    _helped(page, found)
    page.section("The runs behind the numbers")
    _records(page, found)
    return page


def summary(found: Found) -> list[str]:
    """What came out, in sentences."""
    story = found.story
    dice = {key: found.scores(getattr(story, f"found_{key}"))["mean"]["dice"] for key in OBJECTIVES}
    ceiling, helped = found.scores(story.ceiling), found.scores(story.help)
    return [
        "Everything here was made on this machine in minutes, from drawn (phantom) images, by the smallest networks: "
        "the numbers show that the parts work, not how well they do on patients, and one seed decides nothing.",
        f"A segmenter trained on real images finds the masks again with Dice {dice['law']:.3f} in images drawn under "
        f"LAW, and with {dice['uniform']:.3f} in images drawn under the plain loss; on held-out real images it reaches "
        f"{ceiling['mean']['dice']:.3f}.",
        f"Trained on real and LAW's images for as many updates, ORDER reaches {helped['mean']['dice']:.3f} "
        f"({_interval(helped)}) on held-out real images, against {ceiling['mean']['dice']:.3f} ({_interval(ceiling)}) "
        "without them.",
        bigger_is_easier({"ORDER on held-out real images": found.per_image(story.ceiling)}),
    ]


def _interval(scores: dict[str, Any]) -> str:
    low, high = scores["interval_95"]["dice"]
    return f"95 % interval {low:.3f} to {high:.3f}"


def halves(dice: Tensor, area: Tensor) -> tuple[float, float]:
    """Mean Dice on the smaller half of the lesions, and on the larger half."""
    small, large = (float(dice[half].mean()) for half in torch.argsort(area).tensor_split(2))
    return small, large


def bigger_is_easier(results: dict[str, tuple[Tensor, Tensor]]) -> str:
    """Dice on the smaller half of the lesions beside that on the larger half, in words; name → (Dice, lesion area)."""
    parts: list[str] = []
    for name, (dice, area) in results.items():
        small, large = halves(dice, area)
        verdict = "easier" if large > small else "not easier"
        parts.append(f"for {name}, large lesions are {verdict} than small ones (Dice {large:.2f} against {small:.2f})")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}: the larger half of the lesions against the smaller half."


def _deltas(page: StudyPage, found: Found) -> None:
    strips = sorted((found.of(found.story.law).out / FOLDER).glob("delta-*.png"))
    if strips:
        uri = "data:image/png;base64," + base64.b64encode(strips[-1].read_bytes()).decode("ascii")
        page.sheet(
            [[(uri, "masks, and LAW's δ at four moments of the diffusion, after the training")]],
            caption="After the training: the masks, then δ at 10, 40, 70 and 95 % of the diffusion.",
            labels=True,
        )


def _samples(found: Found) -> dict[str, list[Shown]]:
    drawn = {
        name: PreparedSource(found.of(getattr(found.story, f"drawn_{key}")).out) for key, name in OBJECTIVES.items()
    }
    sources = {"real": found.pool(TRAIN), **{f"drawn under {name}": source for name, source in drawn.items()}}
    return {title: _shown(source) for title, source in sources.items()}


def _shown(source: PreparedSource) -> list[Shown]:
    """One picture of each of the first patients by name, so that they differ."""
    firsts = {source.groups[i]: i for i in sorted(range(len(source)), key=lambda i: source.names[i], reverse=True)}
    pairs = [source.read(index) for _, index in sorted(firsts.items())[:SHOWN]]
    return [Shown(p.name, np.broadcast_to(p.image, (*p.mask.shape, 3)).copy(), p.mask > 0) for p in pairs]


def _judged(page: StudyPage, found: Found) -> None:
    story = found.story
    judge = found.of(story.judge).out
    sets = {key: PreparedSource(found.of(getattr(story, f"drawn_{key}")).out) for key in OBJECTIVES}
    apart, chance = distances(judge, found.pool(TRAIN), sets)
    rows: list[list[str | int]] = []
    for key, name in OBJECTIVES.items():
        small, large = halves(*found.per_image(getattr(story, f"found_{key}")))
        probe = found.training(key)["metrics"]["val_probe_blank_inside"]
        dice = found.scores(getattr(story, f"found_{key}"))["mean"]["dice"]
        rows.append([name, f"{dice:.3f}", f"{small:.3f}", f"{large:.3f}", f"{apart[key]:.2f}", as_text(probe, 2)])
    small, large = halves(*found.per_image(story.ceiling))
    dice = found.scores(story.ceiling)["mean"]["dice"]
    rows.append(["real, held out", f"{dice:.3f}", f"{small:.3f}", f"{large:.3f}", f"{chance:.2f}", "–"])
    page.table(
        ["images", "mask recovery, Dice", "smaller lesions", "larger lesions", "Fréchet distance", "control"],
        rows,
        caption="Mask recovery: what the judge, ORDER trained on real images, finds, against the mask. Fréchet "
        "distance to the real training images, in the judge's own features (no FID: that needs Inception's weights); "
        "for real images, one half against the other. Control: how much a blank mask changes the picture inside the "
        "mask.",
    )


def _helped(page: StudyPage, found: Found) -> None:
    story = found.story
    names = {"real images alone": story.ceiling, "real and synthetic images": story.help}
    scores = {name: found.scores(job) for name, job in names.items()}
    page.table(
        ["ORDER trained on", "Dice", "IoU", "precision", "recall"],
        [
            [name, *(f"{one['mean'][key]:.3f}" for key in ("dice", "iou", "precision", "recall"))]
            for name, one in scores.items()
        ],
        caption="On the held-out real images, after as many updates; one seed each. `laworder evaluate downstream` "
        "makes this comparison with several seeds and a test.",
    )
    size_chart(page, scores)


def _records(page: StudyPage, found: Found) -> None:
    for job in found.story.jobs:
        one = found.of(job)
        content: dict[str, Any] = {"job.json": read_record(one.folder)}
        manifest: Path = one.out / "manifest.json"
        if manifest.is_file():
            content["manifest.json"] = json.loads(manifest.read_text(encoding="utf-8"))
        page.record(job.label, content)
