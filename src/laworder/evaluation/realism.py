"""Do the lesions look real? Intensity and texture inside, around and across the border, generated against real."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laworder.data.load import load_arrays
from laworder.data.pairs import Source
from laworder.evaluation.context import Context
from laworder.evaluation.section import Row, Section, not_measured
from laworder.metrics.realism import STATISTICS, Distance, distance, statistics
from laworder.report import Page

NAME, TITLE = "realism", "Realism of lesions"
SIDE = 256
_CHUNK = 32


def measure(context: Context) -> Section:
    """The section of the report."""
    sides = [statistics_of(source) for source in (context.generated, context.real)]
    found: dict[str, Distance] = {}
    for name in STATISTICS:
        made, real = (side[name][side[name].isfinite()] for side in sides)
        if min(len(made), len(real)) >= 4:
            found[name] = distance(real, made, resamples=context.resamples, seed=context.seed)
    if not found:
        return not_measured(NAME, TITLE, "give pairs with larger lesions: too few have pixels enough on both sides")
    counts = [int(side["contrast"].isfinite().sum()) for side in sides]
    mean = sum(d.distance for d in found.values()) / len(found)
    chance = sum(d.floor for d in found.values()) / len(found)
    beside = (
        f"mean over {len(found)} statistics; real half vs real half {chance:.3f}; {counts[0]} and {counts[1]} lesions"
    )
    worst = sorted(found, key=lambda name: -found[name].distance)
    rows = [Row("Distance of lesions, in real standard deviations", mean, None, beside, 3)]
    words = [
        f"Lesions differ from real ones by {mean:.2f} real standard deviations on average (by chance {chance:.2f}); "
        f"most in {worst[0]}, by {found[worst[0]].distance:.2f} (the mean is shifted by {found[worst[0]].shift:+.2f})."
    ]
    values = {
        "measured": True,
        "size": SIDE,
        "lesions": {"generated": counts[0], "real": counts[1]},
        "mean_distance": mean,
        "mean_floor": chance,
        "statistics": {name: asdict(d) for name, d in found.items()},
    }
    return Section(NAME, TITLE, values, rows, words, _Drawing(found, worst))


def statistics_of(source: Source) -> dict[str, Float[Tensor, " n"]]:
    """Every statistic of every pair, a chunk of images at a time."""
    parts: list[dict[str, Tensor]] = []
    for start in range(0, len(source), _CHUNK):
        indices = range(start, min(start + _CHUNK, len(source)))
        pairs = load_arrays(source, SIDE, 3, indices, progress=False)
        parts.append(statistics(pairs.images, pairs.masks))
    return {name: torch.cat([part[name] for part in parts]) for name in STATISTICS}


@dataclass(frozen=True)
class _Drawing:
    """The table of all statistics, the most different first."""

    found: dict[str, Distance]
    order: list[str]

    def __call__(self, page: Page) -> None:
        rows = [
            [
                name,
                f"{d.distance:.3f} ({d.interval_95[0]:.3f} to {d.interval_95[1]:.3f})",
                f"{d.floor:.3f}",
                f"{d.shift:+.3f}",
                f"{d.generated_mean:.3f} ± {d.generated_spread:.3f}",
                f"{d.real_mean:.3f} ± {d.real_spread:.3f}",
            ]
            for name, d in ((name, self.found[name]) for name in self.order)
        ]
        page.table(
            ["statistic", "distance", "real halves", "shift", "generated", "real"],
            rows,
            caption="Wasserstein distance of each statistic in real standard deviations, with 95 % interval.",
        )
        page.text(
            f"Gray values in [0, 1] at {SIDE}×{SIDE}. Around is a ring outside the lesion, far is beyond it. Distances "
            "near the column of real halves are what chance gives; a shift of +1 is one real standard deviation more."
        )
