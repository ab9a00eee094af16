"""The tables about segmenters: comparison, attention controls, skip stages, runtime."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from laworder.paper.jobs import Data, Job, Output
from laworder.paper.setting import DATASETS, DRAWN, ONE, STAND_IN, STANDS, Setting
from laworder.paper.spec import Absent, Column, Known, Row, Source, Table, across, dig, judged
from laworder.presets import read_preset
from laworder.segmenters.profile import cost

DEMO = {
    "size": 64,
    "epochs": 15,
    "batch": 8,
    "held_out": 0.2,
    "validate_every": 5,
    "optimiser.name": "adamw",
    "optimiser.lr": 2e-2,
    "optimiser.warmup": 10,
    "optimiser.floor": 1e-4,
    "phantom.count": 120,
}
HEAVY = {"unet": "31 million parameters", "pranet": "30 million parameters"}
TESTS = {"polyps": ("law-test",), "brisc": ("order-test", "law-test")}
POOLS = {"polyps": ("order", "law"), "brisc": ("order", "law")}
SUBSETS = {"kvasir": "Kvasir", "clinicdb": "ClinicDB"}


def training(setting: Setting, model: str, dataset: str, seed: int) -> Job | Absent:
    """`seg train` of one model on one data set with one seed."""
    where = data_settings(setting, dataset)
    if isinstance(where, Absent):
        return where
    if setting.drawn and model in HEAVY:
        return Absent(f"{HEAVY[model]}: not trained at demo scale")
    recipe = DEMO if setting.drawn else read_preset("seg train", setting.recipe)
    kind = "drawn" if setting.drawn else f"{dataset}/{setting.recipe}"
    settings = {**recipe, **where, "model": model, "seed": seed, "log": "none"}
    return Job(
        "seg train",
        f"seg train/{kind}/{model}/seed {seed}",
        settings,
        work=float(recipe.get("epochs", 100)),
        gpus=1.0 if model in HEAVY else 0.25,
    )


def data_settings(setting: Setting, dataset: str) -> dict[str, Any] | Absent:
    """What `seg train` is told about its data."""
    if setting.drawn:
        return DRAWN if dataset == STAND_IN else Absent(ONE)
    pool = setting.pool(dataset, *POOLS[dataset])
    if pool is None:
        return Absent(f"no {DATASETS[dataset]} data: give --data.{dataset} FOLDER")
    return {"data": Data(pool)}


def tested(setting: Setting, model: str, dataset: str, seed: int) -> Job | Absent:
    """`seg evaluate` of that training: on the test pool where the data has one, else on what the run held out."""
    trained = training(setting, model, dataset, seed)
    if isinstance(trained, Absent):
        return trained
    test = None if setting.drawn else setting.pool(dataset, *TESTS[dataset])
    settings: dict[str, Any] = {"model": Output(trained), "resamples": 200 if setting.drawn else 2000}
    if test is None:
        settings |= {key: value for key, value in trained.settings.items() if key == "data" or "phantom." in key}
        settings |= {"part": "held-out", "subset": "none"}
    else:
        settings |= {"data": Data(test), "subset": "folder" if dataset == "polyps" else "none"}
    return Job("seg evaluate", trained.label.replace("seg train", "seg evaluate", 1), settings, gpus=trained.gpus)


def has_test(setting: Setting, dataset: str) -> bool:
    """Whether the paper's kind of test, on pictures that no training saw, can be made."""
    return not setting.drawn and setting.pool(dataset, *TESTS[dataset]) is not None


@lru_cache(maxsize=64)
def size_of(model: str) -> dict[str, Any]:
    """Parameters and operations of a model."""
    return cost(model)


def price(row: Row, column: Column) -> Known | None:
    """What follows from a model alone: parameters and operations; None for what has to be measured."""
    found = {PARAMS.metric: ("params", 1.0), FLOPS.metric: ("conv_flops", 1e9)}.get(column.metric)
    return None if found is None else Known(lambda: size_of(row.key)[found[0]] / found[1])


def _ask(setting: Setting, row: Row, column: Column, seed: int) -> Source:
    if column.dataset in SUBSETS:
        return _subset(setting, row, column, seed)
    read = dig("model", "mean_over_subsets", column.metric)
    return price(row, column) or judged(tested(setting, row.key, column.dataset, seed), read, factor=100)


def _subset(setting: Setting, row: Row, column: Column, seed: int) -> Source:
    name = SUBSETS[column.dataset]
    if not has_test(setting, "polyps"):
        return Absent(f"{name}'s test images are not here")
    return judged(tested(setting, row.key, "polyps", seed), dig("model", "subsets", name, column.metric), factor=100)


def _development(setting: Setting, row: Row, column: Column, seed: int) -> Source:
    read = dig("validation", column.metric)
    return price(row, column) or judged(training(setting, row.key, column.dataset, seed), read, factor=100)


def _notes(setting: Setting) -> list[str]:
    if setting.drawn:
        return [STANDS]
    lines = [f"Recipe `{setting.recipe}` of `seg train`; Dice and IoU per image at probability 0.5, then averaged."]
    if not has_test(setting, "polyps"):
        lines.append(
            "Polyps: judged on the tenth of the 2026 images that each seed held out; the paper's test images "
            "(Kvasir 100, CVC-ClinicDB 62) are not here, so the difference mixes method and images."
        )
    lines.append(
        "Rows called nnUNet are the U-Net of 31,037,633 parameters that the paper's table counts; its EGE-UNet is "
        "not the authors' default, and our PraNet is the authors' (30.5 M), not the paper's of 24.2 M."
    )
    return lines


def _development_notes(setting: Setting) -> list[str]:
    if setting.drawn:
        return _notes(setting)
    return [f"Recipe `{setting.recipe}`; Dice on the tenth of the training pool that each seed held out, as here."]


PARAMS = Column("params", "Params", "any", "params", digits=0)
FLOPS = Column("flops", "conv GFLOPs", "any", "gflops", digits=3)
_DICE = Column("dice", "Dice", "", "dice", "up", unit="%")
_IOU = Column("iou", "IoU", "", "iou", "up", unit="%")

COMPARISON = Table(
    key="segmentation",
    title="Segmentation comparison",
    published="segmentation_standard",
    rows=(
        Row("unet", "nnUNet (U-Net, 31 M)", "nnUNet"),
        Row("pranet", "PraNet", "PraNet"),
        Row("egeunet_paper", "EGE-UNet (the paper's widths)", "EGE-UNet"),
        Row("egeunet", "EGE-UNet (its authors' default)"),
        Row("mkunet_t", "MK-UNet-T", "MK-UNet"),
        Row("order_01", "ORDER{0,1}", "ORDER{0,1}"),
    ),
    columns=(PARAMS, FLOPS, *across({"polyps": "Polyps", "brisc": "BRISC"}, _DICE, _IOU)),
    ask=_ask,
    notes=_notes,
)

ATTENTION = Table(
    key="attention",
    title="Attention controls on the same backbone",
    published="segmentation_attention",
    rows=(
        Row("order_backbone", "ORDER backbone", "ORDER backbone"),
        Row("order_se", "ORDER backbone + SE skip", "ORDER backbone + SE skip"),
        Row("order_cbam", "ORDER backbone + CBAM skip", "ORDER backbone + CBAM skip"),
        Row("order_01", "ORDER{0,1}", "ORDER{0,1}"),
    ),
    columns=(PARAMS, FLOPS, *across({**SUBSETS, "polyps": "Mean"}, _DICE, _IOU)),
    ask=_ask,
    notes=_notes,
)

STAGES = Table(
    key="stages",
    title="Which skips get bidirectional attention",
    published="ablation_stages",
    rows=(
        Row("order_backbone", "None", "None"),
        Row("order_23", "Shallow skips {2,3}", "Shallow skips {2,3}"),
        Row("order_12", "Mixed skips {1,2}", "Mixed skips {1,2}"),
        Row("order_01", "Deep skips {0,1}", "Deep skips {0,1}"),
        Row("order_0123", "All skips {0,1,2,3}", "All skips {0,1,2,3}"),
    ),
    columns=(PARAMS, *across({"polyps": "Polyps (development split)"}, _DICE)),
    ask=_development,
    notes=_development_notes,
)
