"""A colonoscopy-like picture: a pink tube with folds, vessels and wet highlights, and a polyp as a shaded bump.

The light sits at the camera, so brightness falls with depth into the lumen; a fold is bright on the side that faces the
camera and hides the darker wall behind it. The polyp's base fades into the mucosa on one side, which is where people
disagree about its outline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8

from laworder.data.sources.painters.canvas import (
    Field,
    Lesion,
    LesionPlan,
    grid,
    pixel_noise,
    polar,
    smooth_noise,
    smoothstep,
)

TONES = ((0.93, 0.62, 0.54), (0.95, 0.58, 0.42), (0.94, 0.73, 0.50), (0.92, 0.70, 0.67), (0.88, 0.56, 0.48))
RESIDUE = (0.95, 0.80, 0.35)


@dataclass(frozen=True)
class _Scene:
    """One view of one patient's colon before anything grows in it."""

    light: Field  # how much light reaches the wall: depth and folds
    relief: Field  # small bumps of the mucosa
    vessels: Field  # 0…1
    tone: Float[np.ndarray, "3"]
    frame: Bool[np.ndarray, "size size"]


def paint(
    patient: np.random.Generator, view: np.random.Generator, size: int, fraction: float, distractor: bool
) -> tuple[UInt8[np.ndarray, "size size 3"], UInt8[np.ndarray, "size size"]]:
    """One view (`view`) of one patient's colon (`patient`) with a polyp of `fraction` of its pixels (0: none)."""
    angle, away = patient.uniform(0, 2 * np.pi), patient.uniform(0.15, 0.55)
    scene = _scene(patient, view, size, lumen=(-math.cos(angle), -math.sin(angle)))
    x, y = polar((0, 0), (away, away), 1, angle)
    place = (x + view.normal(0, 0.07), y + view.normal(0, 0.07))
    plan = LesionPlan.draw(patient, place)
    look = _Look.draw(patient)
    colour = np.stack([scene.light * t for t in scene.tone])
    for channel, absorbed in zip(colour, (0.10, 0.34, 0.30), strict=True):  # blood takes green and blue
        channel *= 1 - absorbed * scene.vessels
    glint = np.zeros_like(scene.light)
    if distractor:
        _bump(colour, glint, *_distractor(view, size, place, scene))
    mask = np.zeros((size, size), dtype=np.uint8)
    if fraction > 0:
        lesion = plan.at(view, size, fraction, scene.frame)
        mask = lesion.mask
        _bump(colour, glint, lesion, look, scene, view)
    _wet(colour, glint, scene, view)
    return _develop(colour, scene, view), mask


@dataclass(frozen=True)
class _Look:
    """How a bump differs from the mucosa around it."""

    tint: tuple[float, float, float]
    height: float
    rough: float
    soft: float
    fade: float  # direction in which its base fades into the wall

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _Look:
        height = float(rng.uniform(0.5, 1.0))
        # Adenomas are redder than the mucosa; one in five is hyperplastic and paler.
        red = rng.uniform(0.03, 0.20) if rng.uniform() < 0.8 else rng.uniform(-0.14, -0.05)
        tint = (1.03, float(1.02 - red * 1.3), float(1.02 - red * 1.2))
        return cls(
            tint, height, float(rng.uniform(0.4, 1.2)), float(rng.uniform(0.02, 0.05)), float(rng.uniform(0, 6.28))
        )


def _scene(patient: np.random.Generator, view: np.random.Generator, size: int, lumen: tuple[float, float]) -> _Scene:
    """The empty tube: geometry and texture from the patient, camera position from the view."""
    x, y = grid(size)
    far = patient.uniform(0.15, 1.15)
    dx = x - (lumen[0] * far + view.normal(0, 0.08))
    dy = y - (lumen[1] * far + view.normal(0, 0.08))
    warp = smooth_noise(patient, size, 4)
    theta = np.arctan2(dy, dx)
    corners = 0.09 * np.cos(3 * theta + patient.uniform(0, 6.28))  # the taeniae make a rounded triangle
    rho = np.sqrt(dx * dx + dy * dy) * (1 + corners) + 0.07 * warp
    rho = np.maximum(rho, 0) + 0.06
    depth = patient.uniform(0.20, 0.40) / rho
    fold_noise = smooth_noise(patient, size, 5)
    phase = patient.uniform(1.0, 2.2) * np.log(rho) + 0.16 * fold_noise
    phase += patient.uniform(0, 1) + view.normal(0, 0.15)
    inside = phase - np.floor(phase)
    strength = np.clip(0.30 + 0.28 * smooth_noise(patient, size, 3), 0.0, 0.62) * smoothstep(rho, 0.05, 0.25)
    edge = smoothstep(inside, 0.0, 0.10)
    folds = 1 - strength * (edge * inside + (1 - edge))
    light = folds * (1.05 / (1 + depth * depth)) * (1 - 0.13 * (x * x + y * y))
    relief = smooth_noise(patient, size, 12) + 0.35 * smooth_noise(patient, size, 40)
    light *= 1 + 0.035 * relief
    return _Scene(light, relief, _vessels(patient, view, size, warp), _tone(patient), _frame(patient, x, y))


def _tone(patient: np.random.Generator) -> Float[np.ndarray, "3"]:
    tone = np.asarray(TONES[int(patient.integers(len(TONES)))]) + patient.normal(0, 0.02, 3)
    return (tone * patient.uniform(0.85, 1.08)).astype(np.float32)


def _vessels(patient: np.random.Generator, view: np.random.Generator, size: int, warp: Field) -> Field:
    """Thin branching lines: where a smooth field changes sign, thinned out in patches."""
    coarse = smooth_noise(patient, size, 6) + 0.25 * smooth_noise(view, size, 6) + 0.4 * warp
    fine = smooth_noise(patient, size, 15)
    amount = patient.uniform(0.0, 0.9)
    lines = np.exp(-np.square(coarse * 14)) + 0.7 * np.exp(-np.square((fine + coarse) * 11))
    return amount * np.minimum(lines, 1) * smoothstep(fine - warp, -1.2, 1.0)


def _frame(patient: np.random.Generator, x: Field, y: Field) -> Bool[np.ndarray, "size size"]:
    """What the endoscope's aperture leaves of the picture: all, a clipped square, or a circle."""
    kind, wide, high = patient.uniform(), patient.uniform(0.86, 0.99), patient.uniform(0.90, 0.99)
    if kind < 0.25:
        return np.ones(x.shape, dtype=bool)
    across, down = np.abs(x), np.abs(y)
    square = (across < wide) & (down < high)
    if kind < 0.75:
        return square & (across + down < (wide + high) * 0.80)
    return square & (x * x + y * y < 1.08)


def _bump(
    colour: np.ndarray, glint: Field, lesion: Lesion, look: _Look, scene: _Scene, view: np.random.Generator
) -> None:
    """Raise a dome on the wall: lit from the camera, shaded towards its rim, with a contact shadow behind it."""
    size = glint.shape[0]
    x, y = grid(size)
    dx, dy = x - lesion.centre[0], y - lesion.centre[1]
    side = (dx * math.cos(look.fade) + dy * math.sin(look.fade)) / lesion.radius
    softness = look.soft * (1 + (1.5 + 2.0 * (1 - look.height)) * smoothstep(side, -0.2, 1.0))
    inside = lesion.opacity(np.minimum(softness, (0.6 * lesion.radius)))
    dome = np.sqrt(np.clip(1 - lesion.field * lesion.field, 0, 1))
    # The light stands over the middle of the picture: the side of the dome that faces it is brighter.
    toward = [c / (math.hypot(*lesion.centre) + 0.35) for c in lesion.centre]
    lean = (dx * toward[0] + dy * toward[1]) / lesion.radius
    shade = 1 + look.height * (0.70 * (dome - 0.70) - 0.26 * lean)
    pits = np.abs(smooth_noise(view, size, 46))  # a pit pattern: fine dark lines over all of the polyp
    shade += look.rough * (0.11 * np.minimum(pits, 1) - 0.06)
    shadow = np.exp(-np.square((lesion.field - 1.05) * 5)) * np.clip(lean + 0.25, 0, 1)
    colour *= 1 - (0.30 * look.height) * shadow * (1 - inside)
    # A bump stands out of the wall towards the lamp: the higher it is, the less of the wall's light and shade it shows.
    around = max(0.45, float(scene.light[lesion.mask > 0].mean()))
    lifted = scene.light + min(1.0, 0.25 + look.height) * (around - scene.light)
    for channel, tint, tone in zip(colour, look.tint, scene.tone, strict=True):
        channel += inside * (np.clip(shade, 0.15, 1.6) * lifted * (tint * tone) - channel)
    top = lesion.radius * 0.35
    spot = np.square((dx + top * toward[0]) / (0.22 * lesion.radius))
    spot += np.square((dy + top * toward[1]) / (0.16 * lesion.radius))
    wet = np.exp(-spot) + 0.25 * smooth_noise(view, size, 40)
    glint += look.height * smoothstep(wet, 0.55, 0.85) * inside


def _distractor(
    view: np.random.Generator, size: int, place: tuple[float, float], scene: _Scene
) -> tuple[Lesion, _Look, _Scene, np.random.Generator]:
    """Something that rises from the wall and is no lesion: a swollen fold of the wall's colour, or yellow residue."""
    turn = math.atan2(place[1], place[0]) + view.uniform(1.8, 4.4)
    far = view.uniform(0.35, 0.65)
    plan = LesionPlan.draw(view, polar((0, 0), (far, far), 1, turn), lobes=1.6)
    residue = view.uniform() < 0.5
    stretched = LesionPlan(plan.centre, view.uniform(2.2, 3.6), turn + np.pi / 2, plan.waves, plan.phases)
    fraction = 0.004 * (0.03 / 0.004) ** view.uniform()
    lesion = (plan if residue else stretched).at(view, size, fraction, scene.frame)
    tint = tuple(r / float(t) for r, t in zip(RESIDUE, scene.tone, strict=True)) if residue else (1.02, 1.0, 1.0)
    look = _Look((tint[0], tint[1], tint[2]), float(view.uniform(0.4, 0.8)), float(residue), 0.05, turn)
    return lesion, look, scene, view


def _wet(colour: np.ndarray, glint: Field, scene: _Scene, view: np.random.Generator) -> None:
    """Wet mucosa glitters where it faces the lamp: small clustered white spots on the nearer wall."""
    size = glint.shape[0]
    fine = smooth_noise(view, size, 44) + 0.9 * smooth_noise(view, size, 7)
    spots = smoothstep(fine + 0.5 * scene.relief + 1.4 * scene.light, 4.0, 4.5)
    amount = np.clip(glint + spots, 0, 1) * 0.85
    for channel, white in zip(colour, (1.0, 0.98, 0.94), strict=True):
        channel += amount * (white - channel)


def _develop(colour: np.ndarray, scene: _Scene, view: np.random.Generator) -> UInt8[np.ndarray, "size size 3"]:
    """Exposure, a tone curve that reddens the dark, sensor noise, and the black frame."""
    size = colour.shape[1]
    exposure = view.uniform(0.92, 1.12)
    noise = 0.010 * pixel_noise(view, size)
    out = np.empty((size, size, 3), dtype=np.float32)
    for k, gamma in enumerate((0.85, 1.05, 1.10)):
        bright = np.maximum(colour[k] * exposure, 1e-4) ** gamma
        out[..., k] = bright + noise
    out[~scene.frame] = 0.015
    return (np.clip(out, 0, 1) * 255 + 0.5).astype(np.uint8)
