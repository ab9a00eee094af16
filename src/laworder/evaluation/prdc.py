"""Precision, recall, density and coverage of the generated set, by Inception-2015 or by a second network."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from laworder.evaluation.context import Context
from laworder.evaluation.section import Row, Section, not_measured
from laworder.metrics.frechet import Features
from laworder.metrics.neighbours import NEAREST, Neighbours, neighbours
from laworder.report import Page

NAME, TITLE = "prdc", "Precision, recall, density, coverage"


def measure(context: Context) -> Section:
    """The section of the report."""
    if min(len(context.generated), len(context.real)) <= NEAREST:
        return not_measured(NAME, TITLE, f"give at least {NEAREST + 1} images a side")
    if not context.networks:
        return not_measured(NAME, TITLE, "give --inception or --encoder")
    encoder = context.networks[-1]
    found = context.features.extractor(encoder)
    made, real = (context.features.of(source, encoder) for source in (context.generated, context.real))
    shares = asdict(neighbours(real, made))
    ceiling = _halves(real, context.seed)
    known = {} if ceiling is None else asdict(ceiling)
    rows = [
        Row(name, value, None, f"real half vs real half {known[name]:.3f}" if name in known else "", 3)
        for name, value in shares.items()
    ]
    words = [
        f"By {found.label}: precision {shares['precision']:.2f}, recall {shares['recall']:.2f}, density "
        f"{shares['density']:.2f}, coverage {shares['coverage']:.2f} ({NEAREST} neighbours)."
    ]
    values = {"measured": True, "encoder": found.label, "neighbours": NEAREST, **shares, "real_halves": known or None}
    return Section(NAME, TITLE, values, [_titled(row, found.label) for row in rows], words, _draw)


def _titled(row: Row, label: str) -> Row:
    return Row(f"{row.measure.capitalize()}, {label}", row.value, row.interval, row.beside, row.digits)


def _halves(real: Features, seed: int) -> Neighbours | None:
    """One random half of the real images taken as generated: what reality itself reaches."""
    order, half = np.random.default_rng(seed).permutation(len(real)), len(real) // 2
    if half <= NEAREST:
        return None
    return neighbours(*(np.array(real[np.sort(part)]) for part in (order[:half], order[half : 2 * half])))


def _draw(page: Page) -> None:
    page.text(
        "Precision: the share of generated images that lie among real ones. Recall: the share of real images that lie "
        "among generated ones. Density and coverage say the same and are not moved by single outliers."
    )
