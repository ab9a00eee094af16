"""A segmenter as a folder: `config.json`, `model.safetensors` and a model card, on disk or on the Hugging Face Hub.

The configuration holds everything that the weights do not: the model's name and every setting, the preprocessing it
was trained with, and what its maker says about it. Weights are safetensors only: no file is
opened that could run code.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (huggingface_hub and safetensors are typed in part only)

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from huggingface_hub import ModelCard, ModelCardData, PyTorchModelHubMixin, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from laworder._version import __version__
from laworder.errors import UserError

if TYPE_CHECKING:
    from typing_extensions import Self

    from laworder.order.base import Segmenter

FORMAT = 1
"""Version of the layout of config.json. A reader knows its own and all before it."""

CONFIG, WEIGHTS, UNSAFE = "config.json", "model.safetensors", "pytorch_model.bin"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INITIAL_ONLY = {"backbone_weights"}
"""Settings that only choose where training started: the saved weights replace them."""

Model = TypeVar("Model", bound="Segmenter")


@dataclass(frozen=True)
class Preprocessing:
    """What happens to an image in [0, 1] before the model, and to a probability after it."""

    size: int = 256
    """Side in pixels to which training images were resized."""
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    threshold: float = 0.5
    """Probability from which a pixel counts as lesion."""

    def normalise(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        """(x - mean) / std, channel by channel."""
        shape = (-1, *[1] * (x.ndim - 2))
        return (x - x.new_tensor(self.mean).view(shape)) / x.new_tensor(self.std).view(shape)


@dataclass(frozen=True)
class Origin:
    """Which registered model this is, and what its card says of where the idea comes from."""

    name: str
    settings: dict[str, Any]
    paper: str = ""
    licence: str = ""
    differs: str = ""


@dataclass(frozen=True)
class About:
    """What a maker must say of trained weights; printed on the model card, `not stated` where empty."""

    data: str = ""
    recipe: str = ""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Name of a measure (with its data and split) → value."""
    intended_use: str = ""


class HubModel(PyTorchModelHubMixin, library_name="laworder", pipeline_tag="image-segmentation"):
    """`save_pretrained`, `push_to_hub` and `from_pretrained` of a segmenter, through huggingface_hub's mixin."""

    origin: Origin | None = None
    """Where a model from `laworder.create` comes from."""
    preprocessing: Preprocessing = Preprocessing()
    about: About = About()

    _unsaved: tuple[str, ...] = ()

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Notes the settings that JSON cannot hold: the mixin would silently write their defaults."""
        model = super().__new__(cls, *args, **settings)
        model._unsaved = tuple(n for n, value in settings.items() if n not in INITIAL_ONLY and not _plain(value))
        return model

    def hub_config(self) -> dict[str, Any]:
        """What config.json holds: enough to build the model again even where a later version has other defaults."""
        given = cast("dict[str, Any]", self._hub_mixin_config or {})
        for name in self._unsaved:
            raise UserError(f"{name} of this {type(self).__name__} cannot be saved: give it as numbers, text or lists")
        return {
            "format": FORMAT,
            "laworder": __version__,
            "class": type(self).__name__,
            "name": self.origin.name if self.origin else None,
            "settings": {name: value for name, value in given.items() if name not in INITIAL_ONLY},
            "preprocessing": asdict(self.preprocessing),
            "about": asdict(self.about),
        }

    def generate_model_card(self, *_args: Any, **_kwargs: Any) -> ModelCard:
        """The README.md of the folder."""
        tags = ["laworder", "medical"]
        data = ModelCardData(library_name="laworder", pipeline_tag="image-segmentation", tags=tags)
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{card_text(self.hub_config(), self.origin)}")

    def _save_pretrained(self, save_directory: Path) -> None:
        assert isinstance(self, torch.nn.Module)
        (save_directory / CONFIG).write_text(json.dumps(self.hub_config(), indent=2, ensure_ascii=False) + "\n")
        state = {key: value.detach().cpu().contiguous() for key, value in self.state_dict().items()}
        (save_directory / WEIGHTS).write_bytes(save(state, metadata={"format": "pt"}))

    @classmethod
    def _from_pretrained(
        cls: type[Model],  # pyright: ignore[reportGeneralTypeIssues] only segmenters inherit from here
        *,
        model_id: str,
        config: dict[str, Any] | None = None,
        map_location: str = "cpu",
        strict: bool = True,  # noqa: ARG003 the mixin's signature; half a model is never loaded
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        **settings: Any,
    ) -> Model:
        config = checked_config(config, model_id)
        kind = config["class"]
        if kind != cls.__name__:
            raise UserError(f"{model_id} holds a {kind}, not {cls.__name__}: use laworder.segmenters.from_pretrained")
        download = {
            "revision": revision,
            "cache_dir": cache_dir,
            "force_download": force_download,
            "local_files_only": local_files_only,
            "token": token,
        }
        model = cls(**(config["settings"] | settings))
        if config.get("name"):
            model.origin = Origin(config["name"], config["settings"] | settings)
        return filled(model, model_id, config, map_location, download)


def _plain(value: object) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def checked_config(config: dict[str, Any] | None, source: str) -> dict[str, Any]:
    """The configuration, if this version can read it."""
    if config is None or "settings" not in config or "class" not in config:
        raise UserError(f"{source} has no {CONFIG} of laworder: save the model with save_pretrained")
    if config.get("format", 0) > FORMAT:
        raise UserError(
            f"{source} was saved by laworder {config.get('laworder')} in format {config['format']}, newer than this "
            f"version's {FORMAT}: upgrade laworder"
        )
    return config


def fetch(source: str, name: str, download: dict[str, Any]) -> Path:
    """A file of a local folder, or of a repository on the Hub."""
    if Path(source).is_file():
        raise UserError(f"{source} is a file; give the folder that save_pretrained wrote (safetensors only)")
    if Path(source).is_dir():
        if (Path(source) / name).is_file():
            return Path(source) / name
        unsafe = sorted(path.name for path in Path(source).glob("*.bin"))
        found = f"; {unsafe[0]} can run any code when it is read, and is never opened" if unsafe else ""
        raise UserError(f"{source} has no {name}{found}: save the model with save_pretrained")
    try:
        return Path(hf_hub_download(repo_id=source, filename=name, **download))
    except EntryNotFoundError as error:
        raise UserError(f"{source} on the Hub has no {name} (files that can run code are never opened)") from error


def filled(model: Model, source: str, config: dict[str, Any], map_location: str, download: dict[str, Any]) -> Model:
    """The model with the folder's weights and descriptions, in eval mode."""
    path = fetch(source, WEIGHTS, download)
    try:
        model.load_state_dict(load_file(path))
    except (RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} does not hold the weights that {CONFIG} describes: {reason}") from error
    saved = dict(config.get("preprocessing", {}))
    for key in ("mean", "std"):
        if key in saved:
            saved[key] = tuple(saved[key])
    model.preprocessing = Preprocessing(**saved)
    model.about = About(**config.get("about", {}))
    return model.to(map_location).eval()


def card_text(config: dict[str, Any], origin: Origin | None) -> str:
    """The body of a model card."""
    about, prepared = config["about"], config["preprocessing"]
    name = config["name"] or config["class"]
    metrics = "\n".join(f"| {key} | {value:g} |" for key, value in about["metrics"].items())
    lines = [
        f"# {name}",
        "A segmentation model of medical images, saved by "
        f"[laworder](https://github.com/laworder/laworder) {config['laworder']}.",
        "**Not a medical device.** It has no regulatory clearance and must not guide diagnosis or treatment.",
        "## Intended use",
        about["intended_use"] or "Not stated. Research on images like those it was trained on.",
        "## Training data",
        about["data"] or "Not stated.",
        "## Recipe",
        about["recipe"] or "Not stated.",
        "## Metrics",
        f"| measure | value |\n|---|---:|\n{metrics}" if metrics else "Not stated.",
        "## Use",
        "```python\nfrom laworder.segmenters import from_pretrained\n\n"
        'model = from_pretrained("this folder or repository")\n'
        "mask = model.probabilities(model.preprocessing.normalise(images)) > model.preprocessing.threshold\n```",
        f"Images are in [0, 1], resized to {prepared['size']}², then normalised with mean {prepared['mean']} and std "
        f"{prepared['std']}; a pixel is lesion from probability {prepared['threshold']} on.",
    ]
    lines += [
        "## Licence",
        "The code is Apache-2.0. The weights fall under the terms of the data they were trained on.",
    ]
    if origin and origin.paper:
        lines += ["## Source", f"{origin.paper}. Licence of its public code: {origin.licence}. Here: {origin.differs}."]
    lines += ["## Settings", f"```json\n{json.dumps(config['settings'], indent=2, ensure_ascii=False)}\n```"]
    return "\n\n".join(lines) + "\n"
