"""`dataset.json`, once every image of the set is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laworder.config import to_dict
from laworder.data.prepare.finish import summary
from laworder.data.prepared import write_index
from laworder.diffusion.sampling.jobs import Job
from laworder.diffusion.sampling.outfolder import OutFolder
from laworder.diffusion.sampling.provenance import STATEMENT, Origin, recovered
from laworder.diffusion.sampling.recovery import Judge, sift
from laworder.diffusion.sampling.settings import SampleConfig


def finish(
    out: OutFolder,
    config: SampleConfig,
    jobs: Sequence[Job],
    origin: Origin,
    judge: Judge | None,
    *,
    facts: tuple[list[str], str],
) -> dict[str, Any] | None:
    """Sift, and write the index; its head. None where other processes have not made all of theirs yet.

    jobs: the whole set. Where only some images were asked for (`only`), the index lists those that are there.
    """
    told = {job.name: one for job in jobs if (one := out.told(job.name)) is not None}
    scores = {name: s for name, one in told.items() if judge and (s := recovered(one, judge.sha256)) is not None}
    if not told or (len(told) < len(jobs) and not config.only) or (judge and len(scores) < len(told)):
        return None
    report = None
    if judge is not None:
        report = sift(out, scores, config.filter, judge)
    else:
        for name in told:
            out.place(name, kept=True)
    dropped = {one["name"] for one in report["dropped"]} if report else set()
    records = [_line(one, scores.get(name)) for name, one in told.items() if name not in dropped]
    head = _head(config, origin, facts, records, report)
    write_index(out.folder, head, {}, records)
    out.finished(to_dict(config))
    return head


def _line(told: dict[str, Any], dice: float | None) -> dict[str, Any]:
    return {**told["record"], **({} if dice is None else {"recovered_dice": dice})}


def _head(
    config: SampleConfig,
    origin: Origin,
    facts: tuple[list[str], str],
    records: Sequence[dict[str, Any]],
    report: dict[str, Any] | None,
) -> dict[str, Any]:
    classes, licence = facts
    return {
        "name": config.out.resolve().name,
        "source": "laworder synth sample",
        "rules": {
            **to_dict(origin.recipe),
            "count": config.count,
            "jitter": to_dict(config.jitter) if config.augment else None,
        },
        "licence": f"{STATEMENT}; terms of the data that the masks are from: {licence}",
        "notes": [f"Every image is {STATEMENT}: it was drawn for its mask by a model. Keep it apart from real images."],
        "classes": classes,
        "synthetic": True,
        "model": {"sha256": origin.model_sha256, "objective": origin.objective, "backbone": origin.backbone},
        "filter": report,
        "counts": summary(records, {}),
    }
