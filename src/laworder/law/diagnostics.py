"""What to watch while a weighting trains. All without gradient, without synchronising the device, and in few kernels.

`measure` fills `Loss.stats`:

- `w_mean`, `w_min`, `w_max`: of the weight map over the batch.
- `saturated`: share of lesion pixels (m ≥ ½) whose weight the upper clamp holds; δ has no say there.
- `vanished`: share of samples that lost a lesion (class) altogether on the way to the latents' grid.
- `uninformative`: share of samples whose mask is empty or full at the latents' resolution.
- `lesion_ratio`: mean over samples of r, any class.
- `error_inside`, `error_outside`, `error_border`: mean squared error of lesion pixels, of the others, and of the cells
  on either side of the lesion's edge (0 where the batch has no such pixel).
- `delta_mean`, `delta_mask_correlation`: of δ; the second is Pearson's r over all pixels of the batch (0 where either
  is constant), and rises from 0 as φ learns the mask.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from laworder.law.masks import border_band, union


def measure(
    w: Float[Tensor, "b 1 *size"],
    m: Float[Tensor, "b k *size"],
    error: Float[Tensor, "b 1 *size"],
    delta: Float[Tensor, "b 1 *size"] | None,
    capped: Bool[Tensor, "b 1 *size"] | None,
    informative: Bool[Tensor, "b 1 *ones"] | None,
    lost: Bool[Tensor, " b"],
) -> dict[str, Float[Tensor, ""]]:
    """The table above, as 0-d tensors. Call it without gradient."""
    kind = w.dtype
    lesion = union(m)
    inside = (lesion >= 0.5).to(kind)
    outside = 1.0 - inside
    regions = torch.cat([inside, outside, border_band(inside), inside], dim=1)
    saturated = torch.zeros_like(w) if capped is None else capped.to(kind)
    share = _mean_over(torch.cat([error, error, error, saturated], dim=1), regions).unbind()
    low, high = torch.aminmax(w)
    r = lesion.mean(dim=tuple(range(1, m.ndim)))
    blank = (r <= 0) | (r >= 1) if informative is None else ~informative
    stats = {
        "w_mean": w.mean(),
        "w_min": low,
        "w_max": high,
        "saturated": share[3],
        "vanished": lost.mean(dtype=kind),
        "uninformative": blank.mean(dtype=kind),
        "lesion_ratio": r.mean(),
        "error_inside": share[0],
        "error_outside": share[1],
        "error_border": share[2],
    }
    if delta is not None:
        stats["delta_mean"] = delta.mean()
        stats["delta_mask_correlation"] = correlation(delta, lesion)
    return stats


def _mean_over(values: Float[Tensor, "b n *size"], regions: Float[Tensor, "b n *size"]) -> Float[Tensor, " n"]:
    """Mean of each map over its region; 0 where the region is empty."""
    axes = (0, *range(2, values.ndim))
    return (values * regions).sum(dim=axes) / regions.sum(dim=axes).clamp(min=1.0)


def correlation(a: Float[Tensor, "b 1 *size"], b: Float[Tensor, "b 1 *size"]) -> Float[Tensor, ""]:
    """Pearson's r over all elements; 0 where either is constant."""
    pair = torch.cat([a, b], dim=1)
    axes = (0, *range(2, pair.ndim))
    centred = pair - pair.mean(dim=axes, keepdim=True)
    spread = centred.square().sum(dim=axes).prod().sqrt()
    return centred.prod(dim=1).sum() / spread.clamp(min=1e-12)


def strip(*rows: Float[Tensor, "b 1 h w"], zoom: int = 4, gap: int = 1) -> UInt8[Tensor, "height width"]:
    """A contact sheet in grey levels: one row per map, one column per sample; [0, 1] becomes 0…255.

    For a figure such as the paper's "learned LAW delta maps": `strip(mask, delta)` at chosen steps. A volume is
    shown by one of its slices; choose it before the call. Writing the file is the caller's (Pillow:
    `Image.fromarray(strip(...).numpy()).save(path)`).
    """
    assert rows, "strip needs at least one map"
    lines: list[Tensor] = []
    for row in rows:
        levels = (row.detach().float().clamp(0, 1) * 255).round().to(torch.uint8).cpu()
        levels = levels.repeat_interleave(zoom, dim=2).repeat_interleave(zoom, dim=3)
        tiles = torch.nn.functional.pad(levels[:, 0], (gap, gap, gap, gap), value=255)
        lines.append(torch.cat(list(tiles), dim=1))
    return torch.cat(lines, dim=0)
