"""`sd15`: Stable Diffusion 1.5 with a ControlNet, from a hub id or a folder in diffusers' format.

The ControlNet starts as a copy of the UNet's encoder (Zhang et al. 2023), or is a released one. Any model of the same
architecture loads, whatever its widths.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from laworder.diffusion.autoencoders import Diffusers
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.control import fresh_control
from laworder.diffusion.library import library
from laworder.diffusion.settings import Network
from laworder.diffusion.text import ClipWords
from laworder.errors import UserError

PARTS = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")


def sd15(*, size: int, network: Network) -> Backbone:
    """The backbone with its pretrained weights. Its noise schedule and prediction are those it was trained with."""
    diffusers = library("diffusers")
    if network.weights is None:
        raise UserError(
            "network.weights: sd15 starts from pretrained weights: give a hub id or a folder in diffusers format "
            f"({', '.join(part + '/' for part in PARTS)})"
        )
    source = _source(network.weights, PARTS, "network.weights")
    unet = _read(diffusers.UNet2DConditionModel.from_pretrained, source, "unet")
    autoencoder = Diffusers(_read(diffusers.AutoencoderKL.from_pretrained, source, "vae"))
    words = _read(lambda place, **_: ClipWords.load(place), source, "text_encoder")
    scheduler = _read(diffusers.DDIMScheduler.from_pretrained, source, "scheduler")
    control = _controlnet(diffusers, unet, network.controlnet, autoencoder.factor)
    least = autoencoder.factor * 2 ** (len(unet.config.block_out_channels) - 1)
    if size % least:
        raise UserError(f"size must be a multiple of {least} for {network.weights}, not {size}")
    spread = 1.0 / autoencoder.network.config.scaling_factor
    return Backbone(
        name="sd15",
        size=size,
        unet=unet,
        controlnet=control,
        autoencoder=autoencoder.requires_grad_(False).eval(),
        words=words,
        scheduler=scheduler,
        std=(spread,),
    )


def _controlnet(diffusers: Any, unet: Any, released: str | None, factor: int) -> Any:
    if released is None:
        return fresh_control("sd15", unet, factor)
    source = _source(released, (), "network.controlnet")
    control = _read(diffusers.ControlNetModel.from_pretrained, source, None)
    for name in ("in_channels", "block_out_channels", "cross_attention_dim"):
        theirs, ours = control.config[name], unet.config[name]
        if theirs != ours and list(_listed(theirs)) != list(_listed(ours)):
            raise UserError(f"network.controlnet: {released} has {name} {theirs}, the UNet {ours}: not made for it")
    return control


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _source(given: str, parts: tuple[str, ...], setting: str) -> str:
    """A folder with all its parts, or what can only be a hub id."""
    folder = Path(given).expanduser()
    if folder.is_dir():
        lacking = [part for part in parts if not (folder / part).is_dir()]
        if lacking:
            named = ", ".join(f"{part}/" for part in lacking)
            raise UserError(f"{setting}: {given} lacks {named}; a folder in diffusers format has all of it")
        return str(folder)
    if given.count("/") != 1 or given.startswith((".", "/", "~")):
        raise UserError(f"{setting}: {given} is no folder, and no hub id (OWNER/NAME)")
    return given


def _read(load: Callable[..., Any], source: str, part: str | None) -> Any:
    """One part; what lacks is said in one line, with how to get it."""
    where = {} if part is None else {"subfolder": part}
    try:
        return load(source, **where)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        what = source if part is None else f"{part} of {source}"
        get = (
            "complete the folder"
            if Path(source).is_dir()
            else f"fetch it with `hf download {source}` where there is a network"
        )
        raise UserError(f"cannot load {what}: {reason} — {get}") from error
