"""Pictures and a table of the weight maps, for docs/guide/law.md.

    python benchmarks/law_weights.py            # rewrites docs/guide/img/law_*.png and the table in docs/guide/law.md

Everything is computed on the CPU from a seed, in seconds: discs of four sizes on 48×48 latents, weighed by the
objectives as a user would call them, before any training; and a toy training of φ (random predictions, no denoiser).
Needs torch and Pillow only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from laworder.law import LAW, Loss, Objective, objective, strip

DOCS = Path(__file__).resolve().parents[1] / "docs" / "guide"
SIDE = 48
RADII = (1.9, 7.2, 14.8, 21.0)
COLUMNS = ("ratio", "law", "law_no_max", "law_plus")
BEGIN, END = "<!-- table by benchmarks/law_weights.py -->", "<!-- end of table -->"


def disc(radius: float, row: float = (SIDE - 1) / 2, col: float = (SIDE - 1) / 2) -> Tensor:
    """A 1×1×48×48 mask."""
    y, x = torch.meshgrid(torch.arange(SIDE) - row, torch.arange(SIDE) - col, indexing="ij")
    return (x**2 + y**2 < radius**2).float()[None, None]


def weigh(made: Objective, mask: Tensor) -> Loss:
    """The objective on a random prediction."""
    generator = torch.Generator().manual_seed(0)
    pred, target = torch.randn(2, len(mask), 4, SIDE, SIDE, generator=generator).unbind(0)
    with torch.no_grad():
        return made(pred, target, mask)


def table() -> str:
    """One row per lesion size: what a lesion pixel and a background pixel weigh, before any training."""
    names = {"law": "LAW", "law_plus": "LAW+"}
    head = ["r"]
    for name in names.values():
        head += [f"{name}: lesion", "background", "mean", "lesion's share"]
    head.append("LAW: saturated")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for radius in RADII:
        mask = disc(radius)
        row = [f"{100 * mask.mean():.1f} %"]
        for name in names:
            w = weigh(objective(name, channels=4), mask).weight_map
            inside, outside = (w * mask).sum() / mask.sum(), (w * (1 - mask)).sum() / (1 - mask).sum()
            share = (w * mask).sum() / w.sum()
            row += [f"{inside:.2f}", f"{outside:.2f}", f"{w.mean():.2f}", f"{100 * share:.0f} %"]
        row.append(f"{100 * weigh(LAW(channels=4), mask).stats['saturated']:.0f} %")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def colours(w: Tensor, top: float = 3.0) -> Image.Image:
    """Weights as colours: white at 0, through blue at 1, to red at `top` and above."""
    w = w.clamp(0, top)
    low, high = w.clamp(max=1), ((w - 1) / (top - 1)).clamp(min=0)
    red = 255 * (1 - 0.75 * low) + high * 150
    green = 255 * (1 - 0.55 * low) - high * 90
    blue = 255 * (1 - 0.2 * low) - high * 160
    pixels = torch.stack([red, green, blue], dim=-1).clamp(0, 255).round().to(torch.uint8)
    return Image.fromarray(pixels.numpy()).resize((2 * SIDE, 2 * SIDE), Image.Resampling.NEAREST)


def maps_picture() -> Image.Image:
    """Rows: lesion sizes. Columns: the mask, and each objective's weights."""
    cell, left, top = 2 * SIDE + 8, 56, 24
    sheet = Image.new("RGB", (left + cell * (1 + len(COLUMNS)), top + cell * len(RADII) + 28), "white")
    draw = ImageDraw.Draw(sheet)
    for j, name in enumerate(("mask", *COLUMNS)):
        draw.text((left + j * cell, 6), name, fill="black")
    for i, radius in enumerate(RADII):
        mask = disc(radius)
        draw.text((4, top + i * cell + SIDE - 6), f"{100 * mask.mean():.1f} %", fill="black")
        tile = Image.fromarray(strip(mask, zoom=2, gap=0).numpy())
        sheet.paste(tile, (left, top + i * cell))
        for j, name in enumerate(COLUMNS, start=1):
            w = weigh(objective(name, channels=4), mask).weight_map[0, 0]
            sheet.paste(colours(w), (left + j * cell, top + i * cell))
    _legend(sheet, draw, left, top + cell * len(RADII) + 4)
    return sheet


def _legend(sheet: Image.Image, draw: ImageDraw.ImageDraw, x: int, y: int) -> None:
    ramp = torch.linspace(0, 3, 2 * SIDE).repeat(2 * SIDE, 1)
    bar = colours(ramp[:SIDE, ::2]).resize((192, 14))
    sheet.paste(bar, (x, y))
    for value, word in enumerate(("0", "1", "2", "3+")):
        draw.text((x + 64 * value - 3 * value, y + 14), word, fill="black")


def delta_picture() -> Image.Image:
    """The paper's figure "learned LAW delta maps", on a toy: δ after 0, 20 and 200 steps of φ alone."""
    torch.manual_seed(0)
    mask = torch.cat([disc(6, 16, 16), disc(3, 30, 12), disc(10, 26, 30), disc(2, 8, 38)])
    law = LAW(channels=4)
    optimiser = torch.optim.Adam(law.parameter_groups(lr=1e-2))
    rows = [mask]
    for step in range(201):
        loss = law(torch.randn(4, 4, SIDE, SIDE), torch.randn(4, 4, SIDE, SIDE), mask)
        if step in (0, 20, 200):
            assert loss.delta is not None
            rows.append(loss.delta)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
    return Image.fromarray(strip(*rows, zoom=2).numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of law.md (default docs/guide)")
    folder: Path = parser.parse_args().docs
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = folder / "img"
    images.mkdir(parents=True, exist_ok=True)
    maps_picture().save(images / "law_weights.png", optimize=True)
    delta_picture().save(images / "law_delta.png", optimize=True)
    page = folder / "law.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
    print(f"wrote {images / 'law_weights.png'}, {images / 'law_delta.png'} and the table in {page}")


if __name__ == "__main__":
    main()
