"""The fast sampler draws what the plain one and diffusers' own pipeline draw, whatever the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models import PROMPTS, backbone, model_folder
from torch import Tensor

from laworder.diffusion.backbone import Backbone
from laworder.diffusion.ddim import sample_images, starting_noise
from laworder.diffusion.sampling.engine import Engine, to_bytes
from laworder.diffusion.sampling.settings import Recipe
from laworder.diffusion.schedules import SCHEDULERS, sampler
from laworder.errors import UserError
from laworder.law import LAW

RECIPE = Recipe(seed=0, scheduler="ddim", steps=4, guidance=3.0, eta=0.0, drops="prompt", scale=1.0, precision="fp32")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # diffusers, of NumPy 2
ZERO_SNR = ("ddim", "ddpm", "dpm", "unipc", "euler", "euler_a")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def sd15(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("sd15") / "model", "sd15")


def masks(count: int, size: int = 64) -> Tensor:
    made = torch.zeros(count, 1, size, size)
    for n in range(count):
        made[n, :, 8 + 4 * n : 30 + 3 * n, 10:40] = 1
    return made


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 + n) for n in range(count)]


def prompts(count: int) -> list[str]:
    return [PROMPTS[n % 2] for n in range(count)]


def plain(model: Backbone, count: int, how: Recipe = RECIPE, which: Sequence[int] | None = None) -> Tensor:
    rows = list(which or range(count))
    return sample_images(
        model,
        masks(count)[rows],
        model.embed([prompts(count)[row] for row in rows]),
        generators=[generators(count)[row] for row in rows],
        steps=how.steps,
        guidance=how.guidance,
        eta=how.eta,
        scheduler_name=how.scheduler,
        drops=how.drops,
        scale=how.scale,
    )


def apart(a: Tensor, b: Tensor) -> int:
    """The largest difference of two pictures, in gray levels."""
    return int((a.int() - b.int()).abs().max())


@pytest.mark.parametrize(
    "how",
    [
        RECIPE,
        replace(RECIPE, guidance=1.0),
        replace(RECIPE, drops="mask", scale=0.5),
        replace(RECIPE, eta=0.7),
        replace(RECIPE, scheduler="euler_a"),
    ],
)
def test_the_engine_draws_what_the_plain_sampler_draws(tiny: Path, how: Recipe) -> None:
    expected = to_bytes(plain(Backbone.load(tiny), 3, how))
    drawn = Engine(Backbone.load(tiny), how, batch=3).draw(masks(3), prompts(3), generators(3))
    assert drawn.shape == (3, 64, 64, 3)
    assert apart(drawn, expected) <= 1


@pytest.mark.parametrize("kind", ["tiny", "sd15"])
def test_images_do_not_depend_on_the_batch(kind: str, request: pytest.FixtureRequest) -> None:
    model = Backbone.load(request.getfixturevalue(kind))
    how = replace(RECIPE, eta=0.5)
    together = plain(model, 5, how)
    alone = torch.cat([plain(model, 5, how, which=[n]) for n in range(5)])
    assert float((together - alone).abs().max()) < 1e-4
    assert float((together[0] - together[1]).abs().max()) > 1e-2


def test_a_short_batch_is_filled_up_and_cut_again(tiny: Path) -> None:
    engine = Engine(Backbone.load(tiny), replace(RECIPE, eta=0.5), batch=4)
    whole = engine.draw(masks(4), prompts(4), generators(4))
    short = engine.draw(masks(4)[:3], prompts(3), generators(3))
    assert torch.equal(whole[:3], short)


def test_guidance_that_drops_an_empty_prompt_changes_nothing_and_costs_nothing(tiny: Path) -> None:
    calls: list[int] = []
    drawn = []
    for guidance in (1.0, 7.0):
        engine = Engine(Backbone.load(tiny), replace(RECIPE, guidance=guidance), batch=2)
        engine.backbone.unet.register_forward_hook(lambda *of: calls.append(len(of[2][0])))
        drawn.append(engine.draw(masks(2), ["", ""], generators(2)))
    assert torch.equal(*drawn)
    assert calls == [2] * 8
    expected = plain_without_prompt(Backbone.load(tiny))
    assert apart(drawn[1], to_bytes(expected)) <= 1


def plain_without_prompt(model: Backbone) -> Tensor:
    return sample_images(model, masks(2), model.embed(["", ""]), generators=generators(2), steps=4, guidance=7.0)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_sampler_reaches_the_data_under_the_ideal_denoiser(name: str, tmp_path: Path) -> None:
    """For data N(m, s²) the best prediction is known: samples must come out with that mean and spread."""
    prediction = "v_prediction" if name in ZERO_SNR else "epsilon"
    model = backbone("tiny", tmp_path, noise__prediction=prediction)
    mean, spread = 0.2, 0.6
    levels = model.scheduler.alphas_cumprod.double()

    def ideal(latents: Tensor, t: Tensor, text: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
        del text, mask, scale
        a2 = float(levels[int(t)])
        a, b2 = a2**0.5, 1 - a2
        x0 = mean + spread**2 * a * (latents - a * mean) / (a2 * spread**2 + b2)
        eps = (latents - a * x0) / b2**0.5
        return eps if prediction == "epsilon" else a * eps - b2**0.5 * x0

    images = sample_images(
        model,
        masks(8),
        model.embed(prompts(8)),
        generators=generators(8),
        steps=200 if name == "ddpm" else 50,
        guidance=1.0,
        scheduler_name=name,
        denoise=ideal,
    )
    scale = float(model.std)
    assert float(images.mean()) / scale == pytest.approx(mean, abs=0.02)
    assert float(images.std()) / scale == pytest.approx(spread, abs=0.06)


def test_samplers_that_would_ignore_the_schedule_are_refused(tmp_path: Path) -> None:
    schedule = backbone("tiny", tmp_path).scheduler
    for name in set(SCHEDULERS) - set(ZERO_SNR):
        with pytest.raises(UserError, match=f"scheduler: {name} cannot begin in pure noise.*use ddim"):
            sampler(name, schedule)
    with pytest.raises(UserError, match="scheduler: 'ddmi' is unknown; did you mean 'ddpm'"):
        sampler("ddmi", schedule)
    with pytest.raises(UserError, match=r"eta is 0\.5, but EulerDiscreteScheduler has no such setting"):
        plain(backbone("tiny", tmp_path), 1, replace(RECIPE, scheduler="euler", eta=0.5))


def test_latents_that_are_no_numbers_are_said(tiny: Path) -> None:
    model = Backbone.load(tiny)
    model.unet.conv_out.bias.data.fill_(float("nan"))
    with pytest.raises(UserError, match=r"latents that are no numbers \(NaN\): try precision fp32"):
        Engine(model, RECIPE, batch=2).draw(masks(2), prompts(2), generators(2))


def test_a_model_without_masks_is_refused(tiny: Path) -> None:
    model = Backbone.load(tiny)
    model.controlnet = None
    with pytest.raises(UserError, match=r"trained without masks \(stage prior\)"):
        Engine(model, RECIPE, batch=2)


def test_the_weighter_is_fenced_off_while_sampling(tiny: Path) -> None:
    """φ of LAW shapes the training loss only: whoever calls it in the sampling loop is stopped."""
    engine = Engine(Backbone.load(tiny), RECIPE, batch=1)
    law = LAW(channels=engine.backbone.latent_channels)

    def weighted(latents: Tensor, *given: Any) -> Tensor:
        out = engine._denoise(latents, *given)
        law(out, latents, masks(len(latents)))
        return out

    engine.draw(masks(1), prompts(1), generators(1))
    engine._network = weighted
    with pytest.raises(UserError, match="was called while sampling"):
        engine.draw(masks(1), prompts(1), generators(1))


def test_the_weights_on_disk_hold_no_weighter(tiny: Path) -> None:
    assert not [name for name in Backbone.load(tiny).state_dict() if "law" in name or "phi" in name]


def test_bf16_gives_the_same_pictures_to_its_rounding(tiny: Path) -> None:
    precise = Engine(Backbone.load(tiny), RECIPE, batch=2).draw(masks(2), prompts(2), generators(2))
    rough = Engine(Backbone.load(tiny), replace(RECIPE, precision="bf16"), batch=2)
    drawn = rough.draw(masks(2), prompts(2), generators(2))
    assert next(rough.backbone.unet.parameters()).dtype == torch.bfloat16
    assert 0 < float((drawn.float() - precise.float()).abs().mean()) < 6


@pytest.mark.slow
@pytest.mark.untyped
def test_compiled_networks_are_one_graph_and_draw_the_same(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Engine(Backbone.load(tiny), RECIPE, batch=2).draw(masks(2), prompts(2), generators(2))
    asked: list[Any] = []
    real = torch.compile

    def quickly(network: Any, **how: Any) -> Any:
        """Traced as it would be, but run as it is: inductor would take a minute."""
        asked.append(how)
        return real(network, fullgraph=True, backend="aot_eager", dynamic=how["dynamic"])

    monkeypatch.setattr(torch, "compile", quickly)
    engine = Engine(Backbone.load(tiny), RECIPE, batch=2, compile="default")
    assert apart(engine.draw(masks(2), prompts(2), generators(2)), expected) <= 1
    assert asked == [{"mode": "default", "dynamic": False}]


def test_it_agrees_with_the_pipeline_of_diffusers(sd15: Path) -> None:
    """Same noise, mask, prompt and guidance: the same image as StableDiffusionControlNetPipeline's."""
    diffusers = pytest.importorskip("diffusers")
    pipeline = diffusers.StableDiffusionControlNetPipeline.from_pretrained(sd15, safety_checker=None)
    pipeline.set_progress_bar_config(disable=True)
    model = Backbone.load(sd15)
    how = replace(RECIPE, guidance=10.0, steps=5)
    theirs = pipeline(
        prompts(3),
        image=masks(3).expand(-1, 3, -1, -1),
        latents=starting_noise(model, generators(3)),
        num_inference_steps=5,
        guidance_scale=10.0,
        height=64,
        width=64,
        output_type="pt",
    ).images
    ours = Engine(model, how, batch=3).draw(masks(3), prompts(3), generators(3))
    assert apart(ours, to_bytes(theirs * 2 - 1)) <= 1
    assert float(theirs.std()) > 0.01


def test_the_mask_moves_the_picture(tiny: Path) -> None:
    model = Backbone.load(tiny)
    model.controlnet.controlnet_cond_embedding.conv_in.weight.mul_(100)  # a mask that matters, without training
    engine = Engine(model, RECIPE, batch=2)
    same = [torch.Generator().manual_seed(1) for _ in range(2)]
    drawn = engine.draw(masks(2), ["", ""], same)
    assert apart(drawn[0], drawn[1]) > 5
