"""The tables of image quality: FID and CLIP-I against training and held-out images, and LAW part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from laworder.paper.divide import HELD_OUT, TRAIN
from laworder.paper.drawing import divided, drawn
from laworder.paper.jobs import File, Job, Output
from laworder.paper.setting import DATASETS, Setting
from laworder.paper.spec import Absent, Column, Row, Source, Table, across, dig, judged
from laworder.paper.synthesis import METHODS, general_notes

LACKING = {
    "fid": "no weights of Inception-2015: give --weights.inception FILE",
    "clip_i": "no CLIP: give --weights.clip, a hub id or a folder",
}


def _clip_i(content: Any) -> float | None:
    """Only a CLIP's number is CLIP-I."""
    is_clip = dig("sections", "clip_i", "is_clip")(content)
    return dig("sections", "clip_i", "paired", "mean")(content) if is_clip else None


NUMBERS = {"fid": dig("sections", "fidelity", "networks", "inception", "fid"), "clip_i": _clip_i}
PARTS = (
    Row("distillation", "Adaptive Distillation", "Adaptive Distillation"),
    Row("law_no_norm", "Delta map (no norm)", "Delta map (no norm)"),
    Row("law_norm", "+ Normalization", "+ Normalization"),
    Row("law_norm_min", "+ Min-weight clamp", "+ Min-weight clamp"),
    Row("law", "+ Dice regularizer (LAW)", "+ Dice regularizer (LAW)"),
    Row("law_no_max", "LAW w/o max-weight clamp", "LAW w/o max-weight clamp"),
)


def weights(setting: Setting) -> dict[str, Any]:
    """What `evaluate` is told of networks, by metric; without one its metric is not measured."""
    inception, clip = setting.weights.get("inception"), setting.weights.get("clip")
    given = {"fid": None if inception is None else File(str(inception)), "clip_i": None if clip is None else File(clip)}
    return {metric: value for metric, value in given.items() if value is not None}


def compared(setting: Setting, objective: str, dataset: str, seed: int, pool: str) -> Job | Absent:
    """`evaluate` of the images drawn for a pool's masks against the real images of that pool."""
    images, data = drawn(setting, objective, dataset, seed, pool), divided(setting, dataset)
    if isinstance(images, Absent):
        return images
    assert isinstance(data, Job), "what images were drawn for is there"
    named = weights(setting)
    settings: dict[str, Any] = {
        "generated": Output(images),
        "real": Output(data, pool=pool),
        "protocol": "train" if pool == TRAIN else "held-out",
        "only": tuple(judge for metric, judge in (("fid", "fidelity"), ("clip_i", "clip_i")) if metric in named),
        **{option: named[metric] for metric, option in (("fid", "inception"), ("clip_i", "clip")) if metric in named},
    }
    if pool == HELD_OUT:
        settings["train"] = Output(data, pool=TRAIN)
    return Job("evaluate", f"evaluate/{setting.scale}/{dataset}/{objective}/{pool}/seed {seed}", settings)


def _asks(pool: str) -> Callable[[Setting, Row, Column, int], Source]:
    def ask(setting: Setting, row: Row, column: Column, seed: int) -> Source:
        if column.metric not in weights(setting):
            return Absent(LACKING[column.metric])
        return judged(compared(setting, row.key, column.dataset, seed, pool), NUMBERS[column.metric])

    return ask


def _notes(setting: Setting) -> list[str]:
    return [
        *general_notes(setting),
        "FID as pytorch-fid computes it; it falls as images are added, so compare only equal counts. CLIP-I pairs each "
        "image with the real image of its mask, by the encoder that --weights.clip names.",
    ]


_FID = Column("fid", "FID", "", "fid", "down", 2)
_CLIP = Column("clip", "CLIP-I", "", "clip_i", "up", 3)


def _table(
    key: str, title: str, published: str, pool: str, rows: tuple[Row, ...], datasets: Mapping[str, str]
) -> Table:
    columns = across(datasets, _FID, _CLIP)
    return Table(key=key, title=title, published=published, rows=rows, columns=columns, ask=_asks(pool), notes=_notes)


MATCHED = _table("quality", "Image quality against the training images", "law_image_quality", TRAIN, METHODS, DATASETS)
UNSEEN = _table(
    "quality-held-out",
    "Image quality against held-out images",
    "law_image_quality_heldout",
    HELD_OUT,
    METHODS,
    DATASETS,
)
COMPONENTS = _table("components", "LAW, part by part", "ablation_law", TRAIN, PARTS, {"polyps": DATASETS["polyps"]})
