"""The filter after the fact: a segmenter looks for the lesion that each image was asked to have.

Off unless a judge is named, since it also filters out what the judge does not know; and never silent: every score
stands in its image's statement, and dataset.json and the screen say how many images went.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from laworder.data.pairs import Pair, resize_pair
from laworder.data.sources.images import read_image
from laworder.diffusion.sampling.jobs import Job
from laworder.diffusion.sampling.outfolder import OutFolder
from laworder.diffusion.sampling.provenance import recovered, with_recovery
from laworder.diffusion.sampling.settings import Filter
from laworder.errors import UserError
from laworder.metrics.overlap import count
from laworder.runs import Progress
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.predictor import Predictor, lesion_probability


@dataclass(frozen=True)
class Judge:
    """A segmenter, and one hash over its weights."""

    name: str
    predictor: Predictor
    sha256: str

    @classmethod
    def load(cls, name: str, device: torch.device) -> Judge:
        model = load_segmenter(name, device=torch.device("cpu"))
        digest = hashlib.sha256()
        for key, value in sorted(model.state_dict().items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return cls(name, Predictor(model, device), digest.hexdigest())

    def dice(self, pairs: Sequence[Pair]) -> list[float]:
        """Dice of what it finds with the mask, at its own size and threshold; lesion is any class but background."""
        ready = [resize_pair(pair, self.predictor.size, self.predictor.channels) for pair in pairs]
        images = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image, _ in ready])
        true = torch.stack([torch.from_numpy(mask) > 0 for _, mask in ready])
        found: Tensor = lesion_probability(self.predictor(images)) > self.predictor.model.preprocessing.threshold
        return count(found, true).dice().tolist()


def judge_all(out: OutFolder, jobs: Sequence[Job], judge: Judge, *, batch: int, show: bool) -> None:
    """Write a score into the statement of every image that this judge has not seen yet."""
    told = {job.name: out.told(job.name) for job in jobs}
    new = [name for name, one in told.items() if one is not None and recovered(one, judge.sha256) is None]
    with Progress(total=len(new), desc="judging", unit="image", disable=None if show else True) as bar:
        for start in range(0, len(new), batch):
            names = new[start : start + batch]
            for name, dice in zip(names, judge.dice([_pair(out, name) for name in names]), strict=True):
                one = told[name]
                assert one is not None
                out.rewrite(name, with_recovery(one, judge.name, judge.sha256, dice))
            bar.update(len(names))


def _pair(out: OutFolder, name: str) -> Pair:
    image, mask, _ = out.where(name)
    return Pair(image=read_image(image), mask=read_image(mask)[..., 0], name=name, group=name)


def sift(out: OutFolder, scores: dict[str, float], wanted: Filter, judge: Judge) -> dict[str, Any]:
    """Move what scores too low out of the way, and say what was done, for `dataset.json`."""
    dropped = {name: dice for name, dice in scores.items() if dice < wanted.least}
    if len(dropped) == len(scores):
        raise UserError(
            f"filter: no image has a recovered Dice of {wanted.least:g} (best {max(scores.values()):.3f}): all would "
            "be dropped; lower filter.least, or look at the images"
        )
    for name in scores:
        out.place(name, kept=name not in dropped)
    left = [dice for name, dice in scores.items() if name not in dropped]
    return {
        "judge": judge.name,
        "judge_sha256": judge.sha256,
        "least": wanted.least,
        "judged": len(scores),
        "kept": len(left),
        "mean_dice_before": sum(scores.values()) / len(scores),
        "mean_dice_after": sum(left) / len(left),
        "dropped": [{"name": name, "dice": dice} for name, dice in sorted(dropped.items())],
    }


def in_words(report: dict[str, Any]) -> str:
    """The filter's report as a line for the screen."""
    return (
        f"filter: {report['kept']} of {report['judged']} kept, recovered Dice at least {report['least']:g} by "
        f"{report['judge']}; mean {report['mean_dice_before']:.3f} before, {report['mean_dice_after']:.3f} after "
        "(chosen by this judge: let another one measure recovery)"
    )
