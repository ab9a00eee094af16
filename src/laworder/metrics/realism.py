r"""Do generated lesions look like real ones? Numbers of intensity and texture inside, around and across the border.

A picture with a lesion gives one value of each statistic, on its gray values in [0, 1]:

    mean inside, mean around      of the lesion, and of a ring of `RING` of the side around it
    spread inside, spread around  standard deviations
    contrast                      mean inside − mean around
    contrast to noise             contrast / √((variance inside + variance around) / 2)
    edge                          gradient on the border / gradient in the ring: 1 where the border does not show
    border sharpness              mean |gradient| on the border
    grain inside, grain around    √ of the mean squared difference of neighbours, over the spread: 1.4 for white noise
    coarse grain …                the same of pixels 4 apart
    busyness inside, around       mean number of 0/1 changes around a pixel in its local binary pattern (of 8), of
                                  neighbours that differ by more than `STEP`
    saturation inside, around     of colour pictures: (highest − lowest channel) / highest
    spectral slope                of log power over log frequency, whole picture: −2 is smooth, 0 is noise
    mean far, spread far          of the picture beyond the ring

Real and generated values are compared by Wasserstein's distance W₁ = ∫ |F − G| in units of the real standard
deviation: 0.1 is slight, 1 is a shift by a whole standard deviation.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (torch.fft is not typed)

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor
from torch.nn import functional as F

from laworder.errors import UserError

RING = 0.06
"""Width of the ring around a lesion, as a share of the picture's side; at least 2 pixels."""
STEP = 4 / 255
LEAST = 12
"""Pixels that the inside, the ring and the border must have; smaller lesions say nothing about texture."""

STATISTICS = (
    "mean inside",
    "mean around",
    "mean far",
    "spread inside",
    "spread around",
    "spread far",
    "contrast",
    "contrast to noise",
    "border sharpness",
    "edge",
    "grain inside",
    "grain around",
    "coarse grain inside",
    "coarse grain around",
    "busyness inside",
    "busyness around",
    "saturation inside",
    "saturation around",
    "spectral slope",
)


def statistics(images: UInt8[Tensor, "n c h w"], masks: UInt8[Tensor, "n 1 h w"]) -> dict[str, Float[Tensor, " n"]]:
    """Every statistic of every picture; NaN throughout for one without a lesion, or with too small a one.

    Saturation is NaN for gray pictures.
    """
    rgb = images.float() / 255
    gray = rgb.mean(1, keepdim=True)
    inside = masks > 0
    width = max(2, round(RING * images.shape[-1]))
    near = _grown(inside, width)
    around, far, border = near & ~inside, ~near, _border(inside)
    usable = torch.stack([_pixels(part) >= LEAST for part in (inside, around, border)]).all(0)
    steep = _gradient(gray)
    found = _moments(gray, {"inside": inside, "around": around, "far": far})
    sharp = _mean(steep, border)
    found |= {
        "contrast": found["mean inside"] - found["mean around"],
        "border sharpness": sharp,
        "edge": sharp / _mean(steep, around).clamp(min=1e-4),
        "spectral slope": spectral_slope(gray[:, 0]),
    }
    noise = ((found["spread inside"] ** 2 + found["spread around"] ** 2) / 2).sqrt().clamp(min=1e-3)
    found["contrast to noise"] = found["contrast"] / noise
    saturation = (rgb.amax(1, True) - rgb.amin(1, True)) / rgb.amax(1, True).clamp(min=1 / 255)
    busy = _busyness(gray)
    for name, part in (("inside", inside), ("around", around)):
        spread = found[f"spread {name}"].clamp(min=1e-3)
        found[f"grain {name}"] = _grain(gray, part, 1) / spread
        found[f"coarse grain {name}"] = _grain(gray, part, 4) / spread
        found[f"busyness {name}"] = _mean(busy, part)
        gone = torch.full_like(spread, math.nan)
        found[f"saturation {name}"] = _mean(saturation, part) if images.shape[1] == 3 else gone
    nothing = torch.full((len(images),), math.nan)
    return {name: torch.where(usable, found[name], nothing) for name in STATISTICS}


def _moments(gray: Tensor, parts: dict[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, part in parts.items():
        mean = _mean(gray, part)
        found[f"mean {name}"] = mean
        found[f"spread {name}"] = _mean((gray - mean[:, None, None, None]) ** 2, part).sqrt()
    return found


def _pixels(part: Bool[Tensor, "n 1 h w"]) -> Shaped[Tensor, " n"]:
    return part.sum((1, 2, 3))


def _mean(x: Float[Tensor, "n 1 h w"], part: Bool[Tensor, "n 1 h w"]) -> Float[Tensor, " n"]:
    """Mean over a part; 0 where the part is empty."""
    return (x * part).sum((1, 2, 3)) / _pixels(part).clamp(min=1)


def _grown(mask: Bool[Tensor, "n 1 h w"], reach: int) -> Bool[Tensor, "n 1 h w"]:
    """The mask with all within a square of `reach` pixels either way."""
    x = F.max_pool2d(mask.float(), (2 * reach + 1, 1), 1, (reach, 0))
    return F.max_pool2d(x, (1, 2 * reach + 1), 1, (0, reach)) > 0


def _border(mask: Bool[Tensor, "n 1 h w"]) -> Bool[Tensor, "n 1 h w"]:
    """The pixels on either side of the mask's outline; the picture's own edge is no outline."""
    return _grown(mask, 1) & _grown(~mask, 1)


def _gradient(gray: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 1 h w"]:
    """Length of the central-difference gradient, per pixel."""
    padded = F.pad(gray, (1, 1, 1, 1), mode="replicate")
    across = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    down = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    return (across**2 + down**2).sqrt()


def _grain(gray: Tensor, part: Tensor, lag: int) -> Float[Tensor, " n"]:
    """√ of the mean squared difference of pixels `lag` apart, across and down, both of them in the part."""
    sums, counts = torch.zeros(len(gray)), torch.zeros(len(gray))
    for first, second in (
        ((..., slice(None), slice(lag, None)), (..., slice(None), slice(None, -lag))),
        ((..., slice(lag, None), slice(None)), (..., slice(None, -lag), slice(None))),
    ):
        both = part[first] & part[second]
        sums += ((gray[first] - gray[second]) ** 2 * both).sum((1, 2, 3))
        counts += both.sum((1, 2, 3))
    return (sums / counts.clamp(min=1)).sqrt()


def _busyness(gray: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 1 h w"]:
    """How often, going round a pixel's 8 neighbours, brighter turns into not brighter or back."""
    padded = F.pad(gray, (1, 1, 1, 1), mode="replicate")
    h, w = gray.shape[-2:]
    ring = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    brighter = torch.stack([padded[..., y : y + h, x : x + w] > gray + STEP for y, x in ring])
    return (brighter != brighter.roll(1, 0)).sum(0).float()


def spectral_slope(gray: Float[Tensor, "n h w"]) -> Float[Tensor, " n"]:
    """Slope of log power over log frequency, over rings from 4 cycles a picture to half the finest.

    A Hann window keeps the jump at the picture's edge from being taken for detail.
    """
    n, h, w = gray.shape
    window = torch.hann_window(h, periodic=False)[:, None] * torch.hann_window(w, periodic=False)
    power = torch.fft.rfft2((gray - gray.mean((1, 2), keepdim=True)) * window).abs() ** 2
    frequency = (torch.fft.fftfreq(h)[:, None] ** 2 + torch.fft.rfftfreq(w) ** 2).sqrt()
    edges = torch.logspace(math.log10(4 / min(h, w)), math.log10(0.25), 13)
    place = torch.bucketize(frequency, edges)
    rows: list[Tensor] = []
    at: list[float] = []
    for k in range(1, len(edges)):
        inside = place == k
        if bool(inside.any()):
            rows.append((power[:, inside].mean(1) + 1e-12).log())
            at.append(math.log(float(frequency[inside].mean())))
    if len(rows) < 2:
        return torch.full((n,), math.nan)
    x = torch.tensor(at) - sum(at) / len(at)
    return (torch.stack(rows, 1) * x).sum(1) / (x * x).sum()


@dataclass(frozen=True)
class Distance:
    """Generated against real values of one statistic.

    distance:    W₁ in real standard deviations; interval_95 of it, by bootstrap over images of both sides
    floor:       the same between two halves of the real images, on average: what chance alone gives
    shift:       difference of the means, generated − real, in the same units
    """

    distance: float
    interval_95: tuple[float, float]
    floor: float
    shift: float
    real_mean: float
    real_spread: float
    generated_mean: float
    generated_spread: float


def wasserstein(first: Shaped[Tensor, " n"], second: Shaped[Tensor, " m"]) -> float:
    """W₁ of two samples: the area between their distribution functions."""
    a, b = first.double().sort().values, second.double().sort().values
    everything = torch.cat([a, b]).sort().values
    gaps = everything.diff()
    below_a = torch.searchsorted(a, everything[:-1], right=True) / len(a)
    below_b = torch.searchsorted(b, everything[:-1], right=True) / len(b)
    return float(((below_a - below_b).abs() * gaps).sum())


def distance(
    real: Shaped[Tensor, " n"], generated: Shaped[Tensor, " m"], *, resamples: int = 200, seed: int = 0
) -> Distance:
    """Compare two samples of a statistic; values must be finite, at least 2 a side and 4 real ones for the floor.

    The bootstrap adds to W₁ what any two samples differ by, so its interval is centred anew on the value found.
    """
    if min(len(real), len(generated)) < 2:
        raise UserError(f"a distance needs at least 2 images a side, not {len(real)} and {len(generated)}")
    unit = max(float(real.double().std()), 1e-9)
    found = wasserstein(real, generated) / unit
    generator = torch.Generator().manual_seed(seed)

    def draw(values: Tensor) -> Tensor:
        return values[torch.randint(len(values), (len(values),), generator=generator)]

    drawn = torch.tensor([wasserstein(draw(real), draw(generated)) / unit for _ in range(resamples)])
    spread = torch.quantile(drawn.double() - drawn.double().median(), torch.tensor([0.025, 0.975]).double())
    low, high = (max(0.0, found + float(end)) for end in spread)
    return Distance(
        distance=found,
        interval_95=(low, high),
        floor=_floor(real, unit, generator),
        shift=float(generated.double().mean() - real.double().mean()) / unit,
        real_mean=float(real.double().mean()),
        real_spread=float(real.double().std()),
        generated_mean=float(generated.double().mean()),
        generated_spread=float(generated.double().std()),
    )


def _floor(real: Tensor, unit: float, generator: torch.Generator, *, times: int = 20) -> float:
    """Mean W₁ of random halves; NaN where a half has fewer than 2."""
    if len(real) < 4:
        return math.nan
    found: list[float] = []
    for _ in range(times):
        order = torch.randperm(len(real), generator=generator)
        half = len(real) // 2
        found.append(wasserstein(real[order[:half]], real[order[half:]]) / unit)
    return sum(found) / len(found)
