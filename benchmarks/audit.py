"""The audit of the three research datasets: tables and findings as JSON and Markdown, without pictures of patients.

    python benchmarks/audit.py --data data --vae taef2             # polyps, BRISC and the KiTS19 labels
    python benchmarks/audit.py --data data --only kits19

Writes benchmarks/results/audit-{polyps,brisc,kits19}.{json,md}, each with its manifest, and the two charts of each that
the documentation shows, to docs/guide/img. `--pages FOLDER` also writes the pages with pictures; keep those out of the
repository. Everything runs on the CPU; KiTS19 needs nibabel.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import time
from pathlib import Path

import numpy as np

from laworder.data.audit import Reconstruct, audit, open_autoencoder
from laworder.data.audit.charts import Chart, ratio_chart, survival_chart
from laworder.data.audit.page import make_page
from laworder.data.audit.record import as_dict, as_json
from laworder.data.audit.study import Audit
from laworder.data.audit.table import as_markdown
from laworder.data.audit.tables import tables, twin_table
from laworder.data.pairs import Pair, Source
from laworder.data.parallel import over_cores
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.kits19 import TUMOUR, read_labels, tumour_slices
from laworder.data.sources.volumes import open_volume
from laworder.runs import Manifest
from laworder.runs.manifest import command_line, describe_device, now

RESULTS = Path(__file__).resolve().parent / "results"
CHARTS = RESULTS.parent.parent / "docs" / "guide" / "img"
LEAST_TUMOUR = 50
LISTED = 12
FOLDERS = {
    "polyps": {
        "train": "polyps/TrainDataset/image polyps/TrainDataset/masks",
        "ETIS": "polyps/TestDataset/ETIS-LaribPolypDB/images polyps/TestDataset/ETIS-LaribPolypDB/masks",
        "ColonDB": "polyps/TestDataset/CVC-ColonDB/images polyps/TestDataset/CVC-ColonDB/masks",
    },
    "brisc": {
        part: f"brisc2025/segmentation_task/{part}/images brisc2025/segmentation_task/{part}/masks"
        for part in ("train", "test")
    },
}


class TumourSlices:
    """The axial slices of KiTS19's labels with at least 50 tumour pixels, as masks alone (images without channels)."""

    def __init__(self, folder: Path) -> None:
        cases = sorted(folder.glob("case_*/segmentation.nii.gz"))
        found: list[list[tuple[str, str, tuple[int, int], bytes]]] = [[] for _ in cases]

        def read(index: int) -> None:
            seen, case = read_labels(open_volume(cases[index])), cases[index].parent.name
            for z in tumour_slices(seen, LEAST_TUMOUR):
                tumour = seen[z] == TUMOUR
                found[index].append((f"{case}-{z:04d}", case, tumour.shape, np.packbits(tumour).tobytes()))

        over_cores(read, len(cases), label="KiTS19 labels")
        self.slices = [one for case in found for one in case]
        self.names = [one[0] for one in self.slices]
        self.groups = [one[1] for one in self.slices]

    def __len__(self) -> int:
        return len(self.slices)

    def read(self, index: int) -> Pair:
        name, case, shape, bits = self.slices[index]
        mask = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=shape[0] * shape[1]).reshape(shape)
        return Pair(image=np.zeros((*shape, 0), dtype=np.uint8), mask=mask, name=name, group=case)


def sources_of(name: str, data: Path) -> dict[str, Source]:
    if name == "kits19":
        return {"tumour": TumourSlices(data / "kits19")}
    found: dict[str, Source] = {}
    for split, folders in FOLDERS[name].items():
        images, masks = (data / part for part in folders.split())
        found[split] = FolderSource(images, masks, check=False)
    return found


def digest(result: Audit, split: str) -> str:
    """SHA-256 over names, images and mask shapes of a split, as they were read."""
    total = hashlib.sha256()
    for one in result.looks:
        if one.split == split:
            seen = one.fingerprint.digest if one.fingerprint else ""
            total.update(f"{one.name}\0{one.height}\0{one.width}\0{one.mask_digest}\0{seen}\0".encode())
    return total.hexdigest()


def write_chart(path: Path, chart: Chart | None) -> None:
    """A chart as a file by itself, on white."""
    if chart is not None:
        style = (
            "<style>:root{--c0:#0b57b0;--c1:#b3420c;--c2:#1a7046} .chart{background:#fff} "
            "text{fill:#1b1f24;font:12px sans-serif} .axis{stroke:#57606a} .grid{stroke:#d0d7de}</style>"
        )
        start, rest = chart.svg.split(">", 1)
        name = "" if "xmlns=" in start else " xmlns='http://www.w3.org/2000/svg'"
        path.write_text(f"{start}{name}>{style}{rest}\n", "utf-8")


def markdown(result: Audit) -> str:
    """Findings and tables, each between the marks by which the documentation includes it."""
    lines = [f"- **{finding.severity}**: {finding.text}" for finding in result.findings]
    parts = {"findings": ["\n".join(lines) + "\n"]}
    for table in (*tables(result), twin_table(result)):
        if table.rows:
            parts.setdefault(table.title.split(",")[0].lower(), []).append(as_markdown(table))
    marked = [
        f"<!-- --8<-- [start:{name}] -->\n\n" + "\n".join(texts) + f"\n<!-- --8<-- [end:{name}] -->\n"
        for name, texts in parts.items()
    ]
    return "\n".join(marked)


def measure(name: str, data: Path, vae: Reconstruct | None, vae_images: int, pages: Path | None) -> None:
    sources = sources_of(name, data)
    began, clock = now(), time.perf_counter()
    result = audit(sources, vae=vae, vae_images=vae_images)
    seconds = time.perf_counter() - clock
    manifest = Manifest(
        kind="benchmark audit",
        command=command_line(),
        config={
            "dataset": name,
            "sizes": [256, 384],
            "factor": 8,
            "w_max": 2.0,
            "vae_images": vae_images if vae else 0,
        },
        seeds={"samples": 0},
        data={split: digest(result, split) for split in sources},
        device=describe_device("cpu"),
        started=began,
        ended=now(),
        outcome="done",
    )
    content = {"seconds": round(seconds, 1), **as_dict(result, listed=LISTED), "manifest": dataclasses.asdict(manifest)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"audit-{name}.json").write_text(as_json(content), "utf-8")
    (RESULTS / f"audit-{name}.md").write_text(markdown(result), "utf-8")
    CHARTS.mkdir(parents=True, exist_ok=True)
    write_chart(CHARTS / f"audit-{name}-survival.svg", survival_chart(result))
    write_chart(CHARTS / f"audit-{name}-ratio.svg", ratio_chart(result))
    if pages is not None:
        pages.mkdir(parents=True, exist_ok=True)
        make_page(result, sources, vae=vae).write(pages / f"audit-{name}.html")
    print(f"{name}: {len(result.looks)} pairs in {seconds:.0f} s, {len(result.errors)} errors")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with polyps, brisc2025 and kits19")
    parser.add_argument("--only", choices=("polyps", "brisc", "kits19"), help="one of the three (default: all)")
    parser.add_argument("--vae", type=Path, help="folder of an autoencoder (default: no round trip)")
    parser.add_argument(
        "--vae-images", type=int, default=12, help="images of each split that go through it (default 12)"
    )
    parser.add_argument("--pages", type=Path, help="folder for the pages with pictures (default: none)")
    given = parser.parse_args()
    vae = None if given.vae is None else open_autoencoder(given.vae)
    for name in ("polyps", "brisc", "kits19"):
        if given.only in (None, name):
            measure(name, given.data, vae, given.vae_images, given.pages)


if __name__ == "__main__":
    main()
