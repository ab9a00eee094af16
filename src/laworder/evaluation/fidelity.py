"""FID and KID of generated against real images, by Inception-2015 and by a second network, each with its floor.

Statistics of either side are written as `fid-generated.npz` and `fid-real.npz`, which pytorch-fid reads; its own files
are read by `--statistics`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laworder.errors import UserError
from laworder.evaluation.context import Context
from laworder.evaluation.extractors import INCEPTION, Extractor
from laworder.evaluation.inception import FEATURES
from laworder.evaluation.section import Row, Section
from laworder.evaluation.weights import REMEDY
from laworder.metrics.frechet import Estimate, Features, Floor, Moments, estimates, floor, frechet, moments
from laworder.report import Page

NAME, TITLE = "fidelity", "FID and KID"
FEW = 2048
"""Images a side below which FID depends on how many there are more than on what they show."""


def check(context: Context) -> None:
    """UserError where a network or given statistics cannot be had."""
    for name in context.networks:
        context.features.extractor(name)
    if context.statistics is not None:
        if INCEPTION not in context.networks:
            raise UserError(f"{context.statistics}: FID to it needs the weights of Inception-2015; {REMEDY}")
        width = len(load_statistics(context.statistics).mean)
        if width != FEATURES:
            raise UserError(f"{context.statistics}: statistics of {width} features; Inception-2015 has {FEATURES}")


def measure(context: Context) -> Section:
    """The section of the report."""
    rows: list[Row] = []
    words: list[str] = []
    values: dict[str, Any] = {"measured": True, "networks": {}}
    if INCEPTION not in context.networks:
        rows.append(Row("FID, Inception-2015", None, None, f"not measured: {REMEDY}", metric="fid"))
        words.append(f"FID is not measured: the weights of Inception-2015 are not here; {REMEDY}.")
        values["networks"][INCEPTION] = {"measured": False, "remedy": REMEDY}
    for name in context.networks:
        found = context.features.extractor(name)
        sides = [context.features.of(source, name) for source in (context.generated, context.real)]
        fid, mmd = estimates(sides[0], sides[1], resamples=context.resamples, seed=context.seed)
        chance = floor(sides[1], seed=context.seed)
        values["networks"][name] = _values(found, sides, fid, mmd, chance)
        rows += _rows(found, sides, fid, mmd, chance, paper=name == INCEPTION)
        words.append(_words(found, sides, fid, mmd, chance, paper=name == INCEPTION))
        if name == INCEPTION:
            known = _statistics(context, sides)
            values |= known
            rows += _against_file(known)
    return Section(NAME, TITLE, values, rows, words, _explain(min(len(context.generated), len(context.real))))


def _values(
    found: Extractor, sides: list[Features], fid: Estimate, mmd: Estimate, chance: Floor | None
) -> dict[str, Any]:
    return {
        "label": found.label,
        "resize": found.rule,
        "features": int(sides[0].shape[1]),
        "generated": len(sides[0]),
        "real": len(sides[1]),
        "fid": fid.value,
        "fid_interval_95": list(fid.interval_95),
        "kid": mmd.value,
        "kid_interval_95": list(mmd.interval_95),
        "floor": None if chance is None else asdict(chance),
    }


def _rows(
    found: Extractor, sides: list[Features], fid: Estimate, mmd: Estimate, chance: Floor | None, *, paper: bool
) -> list[Row]:
    counts = f"{len(sides[0])} generated, {len(sides[1])} real"
    low = ["", ""]
    if chance is not None:
        low = [
            f"; real half vs real half ({chance.images} each) {v}" for v in (f"{chance.fid:.1f}", f"{chance.kid:.5f}")
        ]
    how = f"; {found.rule}"
    kind = "FID" if paper else "Fréchet distance"
    return [
        Row(f"{kind}, {found.label}", fid.value, fid.interval_95, counts + low[0] + how, 2, "fid" if paper else ""),
        Row(f"KID, {found.label}", mmd.value, mmd.interval_95, counts + low[1] + how, 5),
    ]


def _words(
    found: Extractor, sides: list[Features], fid: Estimate, mmd: Estimate, chance: Floor | None, *, paper: bool
) -> str:
    kind = "FID" if paper else "Fréchet distance"
    text = (
        f"By {found.label} ({found.rule}), {len(sides[0])} generated images lie at {kind} {fid.value:.1f} "
        f"({fid.interval_95[0]:.1f} to {fid.interval_95[1]:.1f}) and KID {mmd.value:.4f} from {len(sides[1])} real ones"
    )
    if chance is None:
        return text + "."
    half = f"two random halves of the real images ({chance.images} each)"
    return f"{text}; {half} lie at {kind} {chance.fid:.1f} and KID {chance.kid:.4f} already."


def _explain(fewest: int) -> Callable[[Page], None]:
    def draw(page: Page) -> None:
        page.text(
            "Intervals are 95 % bootstraps over the images of both sides. The floor is the distance between two random "
            "halves of the real images: no generator can be told apart from reality below it at that number of images. "
            "FID falls as images are added, whatever they show; KID does not, and has no such bias."
        )
        if fewest < FEW:
            page.text(
                f"With {fewest} images on one side, fewer than the network has features, compare FID only with FID "
                "of the same numbers of images."
            )

    return draw


def _statistics(context: Context, sides: list[Features]) -> dict[str, Any]:
    """Both sides' statistics written down; and FID against a file of statistics, where one is given."""
    own = moments(sides[0])
    for name, one in (("generated", own), ("real", moments(sides[1]))):
        save_statistics(context.out / f"fid-{name}.npz", one)
    if context.statistics is None:
        return {}
    known = load_statistics(context.statistics)
    return {"statistics": {"file": str(context.statistics), "fid": frechet(own, known)}}


def _against_file(known: dict[str, Any]) -> list[Row]:
    if not known:
        return []
    found = known["statistics"]
    beside = f"against the statistics in {Path(found['file']).name}; how many images made them is not in the file"
    return [Row("FID, Inception-2015, to given statistics", found["fid"], None, beside, 2)]


def save_statistics(path: Path, found: Moments) -> None:
    """`mu` and `sigma`, as pytorch-fid saves them; `n` besides, which it does not read; they hardly compress."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".part").open("wb") as file:
        np.savez(file, mu=found.mean.numpy(), sigma=found.covariance.numpy(), n=found.count)
    path.with_name(path.name + ".part").replace(path)


def load_statistics(path: Path) -> Moments:
    """What pytorch-fid's `--save-stats` or `save_statistics` wrote."""
    try:
        with np.load(path) as file:
            mean, covariance = (torch.from_numpy(np.array(file[key], dtype=np.float64)) for key in ("mu", "sigma"))
            count = int(file["n"]) if "n" in file else 0
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: not statistics for FID ({error}); give an .npz file with mu and sigma, as "
            "`pytorch_fid --save-stats` and `laworder evaluate` write them"
        ) from error
    if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
        raise UserError(f"{path}: mu and sigma do not fit together: {tuple(mean.shape)}, {tuple(covariance.shape)}")
    return Moments(count, mean, covariance)
