"""An MR-like picture: a contrast-enhanced T1 axial head with scalp, skull, folded cortex, ventricles, and a tumour.

The tumour enhances, as a solid blob or as a ring around a dark core, in a halo of oedema that is not part of the label
and hides where it ends. A bias field and Rician noise, √((s + n₁)² + n₂²), come last, as they do in a scanner.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt8

from laworder.data.sources.painters.canvas import (
    Brush,
    Field,
    Lesion,
    LesionPlan,
    blend,
    cover,
    ellipse,
    grid,
    pixel_noise,
    polar,
    smooth_noise,
    smoothstep,
)

WHITE, GRAY, FLUID, SKULL, SCALP = 0.50, 0.38, 0.13, 0.07, 0.72


def paint(
    patient: np.random.Generator, view: np.random.Generator, size: int, fraction: float, distractor: bool
) -> tuple[UInt8[np.ndarray, "size size 1"], UInt8[np.ndarray, "size size"]]:
    """One slice (`view`) of one patient's head (`patient`) with a tumour of `fraction` of its pixels (0: none)."""
    x, y = grid(size)
    head = _Head(patient, view, size)
    picture = head.draw(patient, view)
    angle, away = patient.uniform(0, 2 * np.pi), patient.uniform(0.25, 0.72)
    place = polar((view.normal(0, 0.03), view.normal(0, 0.03)), head.axes, away, angle)
    plan = LesionPlan.draw(patient, place)
    bright = patient.uniform(0.05, 0.28)
    ring = patient.uniform() < 0.35
    swelling = patient.uniform(0.0, 0.14)
    soft = patient.uniform(0.015, 0.045)
    if distractor:
        _enhancing_vessel(picture, head, view, angle)
    mask = np.zeros((size, size), dtype=np.uint8)
    if fraction > 0:
        lesion = plan.at(view, size, fraction, head.radius < 0.97)
        mask = lesion.mask
        _tumour(picture, lesion, view, bright=bright, ring=ring, swelling=swelling, soft=soft)
    bias = 1 + 0.12 * (x * patient.normal() + y * patient.normal())
    bias += 0.06 * smooth_noise(patient, size, 3)
    return _scan(picture * bias, patient, view), mask


class _Head:
    """The geometry of one head at one level: how far every pixel lies from its middle, in brain radii."""

    def __init__(self, patient: np.random.Generator, view: np.random.Generator, size: int) -> None:
        x, y = grid(size)
        level = patient.uniform(0.86, 1.0) + view.normal(0, 0.015)
        self.size = size
        self.axes = (patient.uniform(0.58, 0.66) * level, patient.uniform(0.72, 0.80) * level)
        self.tilt = patient.normal(0, 0.06) + view.normal(0, 0.015)
        shift = smooth_noise(patient, size, 3) * 0.02
        cos, sin = math.cos(self.tilt), math.sin(self.tilt)
        self.x, self.y = x * cos + y * sin + shift, y * cos - x * sin - shift
        # Broader at the back than at the front.
        taper = 1 + patient.uniform(0.04, 0.12) * self.y
        self.radius = ellipse(self.x / taper, self.y, (0, 0), self.axes)
        self.fold = smooth_noise(patient, size, 20) + 0.3 * smooth_noise(view, size, 20)

    def draw(self, patient: np.random.Generator, view: np.random.Generator) -> Field:
        """Scalp, skull, fluid, brain, ventricles: from outside to inside."""
        thick = patient.uniform(0.06, 0.11)
        outer = self.radius
        picture = np.full_like(outer, 0.012)
        fat = patient.uniform(0.75, 1.1) * SCALP
        for reach, value in ((1.10 + thick, fat), (1.045 + thick * 0.45, SKULL), (1.035, 0.32), (1.015, FLUID)):
            blend(picture, value, cover(outer / reach, 0.022))
        blend(picture, self._brain(patient), cover(outer / 0.985, 0.03))
        self._ventricles(picture, patient, view)
        return picture

    def _brain(self, patient: np.random.Generator) -> Field:
        """White matter inside, a folded gray ribbon outside, fluid in the folds and in the midline."""
        contrast = patient.uniform(0.6, 1.3)
        gyri = np.abs(self.fold)
        # Sulci reach in from the surface only.
        depth = smoothstep(self.radius + 0.04 * self.fold, 0.42, 0.95)
        ribbon = 1 - smoothstep(gyri, 0.30, 0.85)
        brain = WHITE - contrast * (WHITE - GRAY) * np.maximum(ribbon * depth, depth * depth * 0.5)
        sulci = (1 - smoothstep(gyri, 0.05, 0.30)) * depth
        brain += sulci * (patient.uniform(0.16, 0.28) - brain)
        midline = np.exp(-np.square((self.x + 0.01 * self.fold) * 55))
        brain += midline * smoothstep(np.abs(self.y), 0.22, 0.40) * (0.22 - brain)
        for side in (-1, 1):  # basal ganglia and thalamus
            for centre, axes in (((0.17 * side, -0.06), (0.08, 0.13)), ((0.08 * side, 0.12), (0.07, 0.09))):
                deep = cover(ellipse(self.x, self.y, centre, axes, 0.35 * side), 0.5)
                blend(brain, (GRAY + 0.02), 0.7 * deep)
        return brain

    def _ventricles(self, picture: Field, patient: np.random.Generator, view: np.random.Generator) -> None:
        """The dark butterfly in the middle, as large as the patient's age makes it."""
        large = patient.uniform(0.6, 1.5)
        level = view.normal(0, 0.02)
        warp = 0.012 * self.fold
        brush = Brush(picture, self.x + warp, self.y - warp, 0.018)
        for side in (-1, 1):
            brush.ellipse((0.055 * side * large, -0.16 + level), (0.035 * large, 0.13), FLUID, angle=0.28 * side)
            brush.ellipse((0.10 * side * large, 0.20 + level), (0.035 * large, 0.15), FLUID, angle=-0.35 * side)
        brush.ellipse((0.0, 0.06), (0.012 * large, 0.07), FLUID)


def _tumour(
    picture: Field,
    lesion: Lesion,
    view: np.random.Generator,
    *,
    bright: float,
    ring: bool,
    swelling: float,
    soft: float,
) -> None:
    """Oedema around, enhancement inside; a ring's core is dark but belongs to the label, as annotators have it."""
    size = picture.shape[0]
    halo = np.exp(-np.square(np.maximum(lesion.field - 1, 0) * 1.6))
    halo *= 1 + 0.4 * smooth_noise(view, size, 7)
    picture -= swelling * np.clip(halo, 0, 1.3) * smoothstep(picture, 0.15, 0.35)
    grain = smooth_noise(view, size, min(64, int(6 / lesion.radius)))
    rim = np.minimum(soft * (1 + 0.5 * np.clip(grain, -1, 1.5)), (0.6 * lesion.radius))
    value = (WHITE + bright) + 0.05 * grain
    if ring:
        core = smoothstep(lesion.field + 0.10 * grain, 0.40, 0.80)
        value = 0.24 + core * (value + 0.08 - 0.24)
    blend(picture, value, lesion.opacity(rim))


def _enhancing_vessel(picture: Field, head: _Head, view: np.random.Generator, lesion_angle: float) -> None:
    """A sinus, a vessel or the choroid plexus: it takes up contrast as a tumour does, and it is normal."""
    detail = 0.016
    brush = Brush(picture, head.x, head.y, detail)
    for _ in range(int(view.integers(1, 4))):
        angle = lesion_angle + view.uniform(0.9, 5.4)
        away = view.uniform(0.15, 0.9)
        centre = polar((0, 0), head.axes, away, angle)
        long = view.uniform(0.03, 0.11)
        brush.ellipse(centre, (long, view.uniform(0.018, 0.035)), view.uniform(0.62, 0.85), angle=angle + np.pi / 2)


def _scan(picture: Field, patient: np.random.Generator, view: np.random.Generator) -> UInt8[np.ndarray, "size size 1"]:
    """Rician noise, then the gray scale of the display."""
    size = picture.shape[0]
    sigma = patient.uniform(0.012, 0.035)
    real = np.maximum(picture, 0) + sigma * pixel_noise(view, size)
    imaginary = sigma * pixel_noise(view, size)
    magnitude = np.sqrt(real * real + imaginary * imaginary) * patient.uniform(0.85, 1.15)
    return (np.clip(magnitude, 0, 1) * 255 + 0.5).astype(np.uint8)[..., None]
