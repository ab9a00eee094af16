"""The paper's numbers as data: every cell of its ten result tables, and how each table was made.

    from laworder import published

    published.find(table="law_image_quality", dataset="polyps", method="LAW", metric="fid")
    # [Row(table='law_image_quality', method='LAW', dataset='polyps', metric='fid', mean=52.32, std=0.7, digits=2)]
    published.TABLES["law_image_quality"].protocol       # sentences
    published.METRICS["fid"].label                       # "FID"

`find` without arguments gives all rows, in the paper's order. Tables are called as their labels in the paper's source,
methods as their rows there (without "(ours)", "(Uniform)" and the like; the doses are "Real + LAW, 250" and so on),
datasets polyps, kits19, brisc, kvasir, clinicdb, and `any` for what does not depend on one (parameters, speed). Dice
and IoU are in percent, `mask_dice`, `mask_iou` and `clip_i` are fractions: each as printed. `std` is None where the
paper gives none.
"""

from __future__ import annotations

from laworder.published.results import METRICS, TABLES, Metric, Row, Table, find

__all__ = ["METRICS", "TABLES", "Metric", "Row", "Table", "find"]
