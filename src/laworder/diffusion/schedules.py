"""Noise schedules of training, and samplers by name: diffusers' own, chosen and configured here."""

from __future__ import annotations

import inspect
from typing import Any, Final

from laworder.diffusion.library import library
from laworder.errors import UserError, nearest

SCHEDULERS: Final[dict[str, str]] = {
    "ddim": "DDIMScheduler",
    "ddpm": "DDPMScheduler",
    "dpm": "DPMSolverMultistepScheduler",
    "unipc": "UniPCMultistepScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler_a": "EulerAncestralDiscreteScheduler",
    "heun": "HeunDiscreteScheduler",
    "pndm": "PNDMScheduler",
}
"""Name → class of diffusers."""
_NEED_NOISE: Final = ("euler", "euler_a", "heun", "pndm")
"""Those that work with predictions of noise or v only."""


def noise_schedule(prediction: str = "v_prediction", betas: str = "scaled_linear") -> Any:
    """A schedule for what trains from nothing: it ends in pure noise (zero terminal SNR), as sampling begins.

    Without that, training never sees the noise that sampling starts from, and brightness drifts to the mean
    (Lin et al. 2024). It needs a prediction that is defined at SNR 0: v, or the sample itself; with `epsilon` the
    schedule is left as it is.
    """
    return library("diffusers").DDIMScheduler(
        num_train_timesteps=1000,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule=betas,
        prediction_type=prediction,
        rescale_betas_zero_snr=prediction != "epsilon",
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
    )


def sampler(name: str, schedule: Any) -> Any:
    """A sampler by name over the noise schedule that a backbone was trained with."""
    if name not in SCHEDULERS:
        raise UserError(f"scheduler: {name!r} is unknown{nearest(name, SCHEDULERS)}")
    kind = getattr(library("diffusers"), SCHEDULERS[name])
    if schedule.config.get("rescale_betas_zero_snr") and not _begins_in_pure_noise(kind):
        able = [n for n, k in SCHEDULERS.items() if _begins_in_pure_noise(getattr(library("diffusers"), k))]
        raise UserError(
            f"scheduler: {name} cannot begin in pure noise, as this model was trained; use {', '.join(able)}"
        )
    if schedule.config.prediction_type == "sample" and name in _NEED_NOISE:
        raise UserError(f"scheduler: {name} cannot draw with a model that predicts the image itself; use ddim")
    return kind.from_config(schedule.config)


def _begins_in_pure_noise(kind: Any) -> bool:
    """Whether a sampler knows zero terminal SNR; others would ignore the setting, and sample another schedule."""
    return "rescale_betas_zero_snr" in inspect.signature(kind.__init__).parameters
