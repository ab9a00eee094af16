"""A CT-like picture: a contrast-enhanced abdominal slice in Hounsfield units, windowed, with a tumour on a kidney.

The tumour has nearly the kidney's own density and grows out of it, so that its outer side borders on fat, which is
easy, and its inner side on kidney, which is not. A cyst has the same shape, water's density, and no label.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt8

from laworder.data.sources.painters.canvas import (
    Brush,
    Field,
    LesionPlan,
    blend,
    cover,
    ellipse,
    grid,
    pixel_noise,
    polar,
    smooth_noise,
)

AIR, FAT, WATER, MUSCLE, LIVER, SPLEEN, BONE, BLOOD = -1000, -100, 5, 55, 105, 120, 420, 165
CENTRE, WIDTH = 40.0, 400.0


def paint(
    patient: np.random.Generator, view: np.random.Generator, size: int, fraction: float, distractor: bool
) -> tuple[UInt8[np.ndarray, "size size 1"], UInt8[np.ndarray, "size size"]]:
    """One slice (`view`) of one patient's abdomen (`patient`), a kidney tumour of `fraction` of it (0: none)."""
    body = _Body(patient, view, size)
    body.draw(patient, view)
    side = 1 if patient.uniform() < 0.5 else -1
    kidney = body.kidneys[side]
    turn = patient.uniform(-1.9, 1.9) + (0 if side > 0 else np.pi)
    plan = LesionPlan.draw(patient, (0.0, 0.0))
    density = patient.uniform(45, 100)
    soft = patient.uniform(0.012, 0.035)
    if distractor:
        _cyst(body, view, body.kidneys[side if view.uniform() < 0.5 else -side], turn)
    mask = np.zeros((size, size), dtype=np.uint8)
    if fraction > 0:
        # A large tumour's middle lies further out: it grows away from the kidney, not through the spine.
        grown = 0.75 + 0.5 * math.sqrt(fraction) + view.normal(0, 0.05)
        place = polar(kidney.centre, kidney.axes, grown, turn)
        plan = LesionPlan(place, plan.elongation, plan.angle, plan.waves, plan.phases)
        lesion = plan.at(view, size, fraction, (body.radius < body.cavity) & ~body.spine)
        mask = lesion.mask
        grain = smooth_noise(view, size, min(48, int(4 / lesion.radius)))
        value = density + 14 * grain
        if patient.uniform() < 0.4:  # necrosis in the middle
            value = value - 45 * np.clip(1.3 - 1.8 * lesion.field + 0.3 * grain, 0, 1)
        blend(body.hu, value, lesion.opacity(min(soft, 0.6 * lesion.radius)))
    return _scan(body.hu, patient, view), mask


class _Kidney:
    def __init__(self, rng: np.random.Generator, side: int, scale: float) -> None:
        self.side = side
        self.centre = (side * rng.uniform(0.36, 0.42) * scale, rng.uniform(0.20, 0.28))
        self.axes = (rng.uniform(0.105, 0.135), rng.uniform(0.14, 0.18))
        self.angle = side * rng.uniform(-0.5, -0.1)
        self.cortex = rng.uniform(135, 200)


class _Body:
    """One slice in Hounsfield units; the picture's left is the patient's right, so the liver lies on the left."""

    def __init__(self, patient: np.random.Generator, view: np.random.Generator, size: int) -> None:
        x, y = grid(size)
        self.size = size
        self.axes = (patient.uniform(0.84, 0.95), patient.uniform(0.62, 0.74))
        self.scale = self.axes[0] / 0.9
        noise = smooth_noise(patient, size, 5) + 0.4 * smooth_noise(view, size, 6)
        other = smooth_noise(patient, size, 6)
        shift = (view.normal(0, 0.015), view.normal(0, 0.015))
        self.x = x - shift[0] + 0.016 * noise
        self.y = y - shift[1] + 0.016 * other
        # Nearly a superellipse: people are flatter at the back than ellipses are.
        flat = 1 - 0.10 * np.clip(self.y, 0, 1)
        self.radius = ellipse(self.x, self.y / flat, (0, 0), self.axes)
        self.kidneys = {s: _Kidney(patient, s, self.scale) for s in (-1, 1)}
        self.cavity = 0.8
        self.spine = ellipse(x, y, (0, 0.42), (0.21, 0.26)) < 1
        self.hu = np.full((size, size), AIR, dtype=np.float32)
        self.brush = Brush(self.hu, self.x, self.y, 0.014)

    def draw(self, patient: np.random.Generator, view: np.random.Generator) -> None:
        """From the outside in, and what lies in front last."""
        fat = patient.uniform(0.06, 0.20)
        x, y = grid(self.size)
        table = y - (self.axes[1] + 0.10) + 0.16 * x * x  # curved up at its sides
        self.hu += 850 * np.exp(-np.square(table * 70))
        blend(self.hu, 30, cover(self.radius, 0.02))
        blend(self.hu, FAT, cover(self.radius / 0.985, 0.02))
        blend(self.hu, MUSCLE, cover(self.radius / (1 - fat), 0.025))
        self.cavity = 0.93 - fat
        blend(self.hu, (FAT + 8), cover(self.radius / self.cavity, 0.03))
        self._ribs(patient, self.cavity + 0.035)
        self._bowel(patient, view)
        self._liver_and_spleen(patient, view)
        self._back(patient)
        for kidney in self.kidneys.values():
            self._kidney(kidney)

    def _ribs(self, patient: np.random.Generator, reach: float) -> None:
        first = patient.uniform(0, 0.5)
        for angle in (first + k * math.tau / 12 for k in range(12)):
            if math.sin(angle) < -0.75:
                continue  # no ribs in front
            centre = polar((0, 0), self.axes, reach, angle)
            tangent = math.atan2(self.axes[1] * math.cos(angle), -self.axes[0] * math.sin(angle))
            self.brush.ellipse(centre, (patient.uniform(0.04, 0.065), 0.017), BONE, angle=tangent)

    def _liver_and_spleen(self, patient: np.random.Generator, view: np.random.Generator) -> None:
        w, h = self.axes
        size = patient.uniform(0.6, 1.05) + view.normal(0, 0.03)
        liver = LIVER + patient.normal(0, 10)
        brush = self.brush
        brush.ellipse((-0.50 * w, -0.14 * h), (0.30 * size, 0.36 * size), liver, angle=0.25)
        brush.ellipse((-0.30 * w, -0.36 * h), (0.34 * size, 0.19 * size), liver, angle=-0.35)
        for _ in range(6):  # its veins
            spot = (-0.5 * w + patient.normal(0, 0.10), -0.2 * h + patient.normal(0, 0.10))
            brush.ellipse(spot, (0.035, 0.012), liver + 40, angle=patient.uniform(0, 3.1), opacity=0.7)
        brush.ellipse((0.66 * w, 0.02 * h), (0.10, 0.19 * size), SPLEEN + patient.normal(0, 8), angle=0.1)

    def _bowel(self, patient: np.random.Generator, view: np.random.Generator) -> None:
        """Loops with a wall, some filled with contrast, some with gas."""
        for _ in range(11):
            turn, away = patient.uniform(-2.4, 0.3), math.sqrt(patient.uniform(0.05, 1)) * self.cavity * 0.80
            a, b = patient.uniform(0.05, 0.11), patient.uniform(0.04, 0.075)
            centre = polar((view.normal(0, 0.01), view.normal(0, 0.01)), self.axes, away, turn)
            turn, content = patient.uniform(0, np.pi), patient.uniform()
            self.brush.ellipse(centre, (a, b), 60, angle=turn)
            inner = 20.0 if content < 0.6 else 230.0 if content < 0.8 else -700.0
            self.brush.ellipse(centre, (a * 0.72, b * 0.68), inner, angle=turn)

    def _back(self, patient: np.random.Generator) -> None:
        """Psoas and back muscles, vertebra with canal, aorta and vena cava."""
        brush = self.brush
        for side in (-1, 1):
            brush.ellipse((0.20 * side, 0.34), (0.085, 0.11), MUSCLE, angle=0.3 * side)
            brush.ellipse((0.17 * side, 0.53), (0.16, 0.075), MUSCLE, angle=-0.1 * side)
            brush.ellipse((0.10 * side, 0.455), (0.10, 0.022), BONE, angle=0.25 * side)
        brush.ellipse((0.0, 0.30), (0.125, 0.10), 300)
        brush.ellipse((0.0, 0.30), (0.105, 0.08), 190)
        brush.ellipse((0.0, 0.54), (0.022, 0.075), BONE)
        brush.ellipse((0.0, 0.425), (0.06, 0.05), BONE)
        brush.ellipse((0.0, 0.425), (0.045, 0.036), 30)
        brush.ellipse((0.05, 0.14), (0.055, 0.055), BLOOD + patient.uniform(0, 60))
        brush.ellipse((-0.08, 0.14), (0.065, 0.05), BLOOD - 20)

    def _kidney(self, kidney: _Kidney) -> None:
        """Cortex brighter than medulla, and fat where the vessels enter."""
        (cx, cy), (a, b) = kidney.centre, kidney.axes
        self.brush.ellipse((cx, cy), (a * 1.25, b * 1.25), FAT)
        self.brush.ellipse((cx, cy), (a, b), kidney.cortex, angle=kidney.angle)
        self.brush.ellipse((cx, cy), (a * 0.68, b * 0.72), kidney.cortex - 35, angle=kidney.angle)
        hilum = (cx - kidney.side * a * 0.45, cy)
        self.brush.ellipse(hilum, (a * 0.5, b * 0.32), FAT + 20, angle=kidney.angle)
        self.brush.ellipse((hilum[0] - kidney.side * 0.03, cy), (a * 0.6, 0.016), BLOOD)


def _cyst(body: _Body, view: np.random.Generator, kidney: _Kidney, away_from: float) -> None:
    """A cyst: round, sharp and dark as water."""
    turn = away_from + view.uniform(1.6, 4.6)
    reach = view.uniform(0.6, 1.1)
    centre = polar(kidney.centre, kidney.axes, reach, turn)
    radius = view.uniform(0.03, 0.10)
    body.brush.ellipse(centre, (radius, radius * view.uniform(0.85, 1.15)), WATER + view.uniform(-5, 20))


def _scan(hu: Field, patient: np.random.Generator, view: np.random.Generator) -> UInt8[np.ndarray, "size size 1"]:
    """Grainy noise, as filtered back-projection leaves it, and the soft-tissue window."""
    size = hu.shape[0]
    sigma = patient.uniform(8, 24)
    noise = pixel_noise(view, size)
    noise = noise + np.roll(noise, 1, axis=0) + np.roll(noise, 1, axis=1) + np.roll(noise, (1, 1), axis=(0, 1))
    shown = (hu + sigma * 0.5 * noise - (CENTRE - WIDTH / 2)) * (1 / WIDTH)
    return (np.clip(shown, 0, 1) * 255 + 0.5).astype(np.uint8)[..., None]
