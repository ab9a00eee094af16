"""The runs behind the synthesis tables: data cut once, a prior, a training for each objective and seed, its images.

All objectives of a data set start from one prior and see the same pairs, so that they differ in nothing else.
"""

from __future__ import annotations

from typing import Any

from laworder.paper.divide import HELD_OUT, TRAIN
from laworder.paper.jobs import Data, File, Job, Output
from laworder.paper.mixing import DATA, SPLIT
from laworder.paper.segmentation import DEMO as SEG_DEMO
from laworder.paper.setting import DATASETS, DRAWN, ONE, STAND_IN, Setting
from laworder.paper.spec import Absent
from laworder.presets import read_preset

DEMO_DATA = {**DRAWN, "phantom.count": 60, "size": 64, "held_out": 0.2}
DEMO = {
    "backbone": "tiny",
    "size": 64,
    "channels": 1,
    "batch": 8,
    "watch.images": 4,
    "watch.validation": 8,
    "watch.steps": 8,
    "optimiser.lr": 2e-3,
    "optimiser.ema": 0.98,
    "prompt": "an MR slice with a lesion",
}
DEMO_SEGMENTER = {
    **{key: value for key, value in SEG_DEMO.items() if not key.startswith("phantom.")},
    "model": "order_01",
    "epochs": 30,
    "validate_every": 10,
    "log": "none",
}
"""As many updates from 43 pairs as the segmenters' own tables take from 96."""
SMALL = {"backbone": "small", "size": 256, "batch": 32, "precision": "bf16", "save_every": 1000, "watch.every": 1000}
STEPS = {"demo": {"prior": 200, "control": 150}, "small": {"prior": 20_000, "control": 6_000}}
"""Updates of either stage; the paper scale has no prior of ours, and its presets say how long it trains."""
DRAWING_STEPS = {"demo": 10, "small": 50, "paper": 50}
POOLS = {"polyps": ("law", "train"), "brisc": ("law",), "kits19": ("train", "law")}
TESTS = {"polyps": ("law-test",), "brisc": ("law-test",), "kits19": ("test", "law-test")}
PROMPTS = {
    "polyps": "a colonoscopy image with a polyp",
    "brisc": "a contrast-enhanced T1 MRI slice of a brain with a tumor",
    "kits19": "an axial CT slice of a kidney with a tumor",
}


def divided(setting: Setting, dataset: str) -> Job | Absent:
    """Prepared data with the pools train and held-out."""
    if setting.drawn:
        return Job("divide", "divide/drawn", DEMO_DATA) if dataset == STAND_IN else Absent(ONE)
    pool = setting.pool(dataset, *POOLS[dataset])
    if pool is None:
        return Absent(f"no {DATASETS[dataset]} data: give --data.{dataset} FOLDER")
    settings = {"data": Data(pool)}
    test = setting.pool(dataset, *TESTS[dataset])
    if test is not None:
        settings["test"] = Data(test)
    return Job("divide", f"divide/{dataset}", settings)


def trained(setting: Setting, objective: str, dataset: str, seed: int) -> Job | Absent:
    """`synth train` of one objective."""
    data = divided(setting, dataset)
    if isinstance(data, Absent):
        return data
    settings = {"data": Output(data, pool=TRAIN), "objective": objective, "seed": seed, "log": "none"}
    name = f"synth train/{setting.scale}/{dataset}/{objective}/seed {seed}"
    if setting.scale == "paper":
        recipe = read_preset("synth train", f"paper-{dataset}") | _given(setting)
        return Job("synth train", name, {**recipe, **settings}, work=float(recipe["steps"]))
    start = prior(setting, dataset, data)
    if isinstance(start, Absent):
        return start
    steps = STEPS[setting.scale]["control"]
    settings |= {"prior": Output(start), **_stage(setting, dataset, steps)}
    return Job("synth train", name, settings, work=float(steps))


def prior(setting: Setting, dataset: str, data: Job) -> Job | Absent:
    """The image prior that every objective of a data set starts from."""
    if setting.scale == "small" and setting.weights.get("autoencoder") is None:
        return Absent("no autoencoder: give --weights.autoencoder FOLDER (TAEF2, or a run of `synth train-vae`)")
    steps = STEPS[setting.scale]["prior"]
    settings = {"data": Output(data, pool=TRAIN), "stage": "prior", "log": "none", **_stage(setting, dataset, steps)}
    return Job("synth train", f"synth train/{setting.scale}/{dataset}/prior", settings, work=float(steps))


def _stage(setting: Setting, dataset: str, steps: int) -> dict[str, Any]:
    if setting.drawn:
        return {**DEMO, "steps": steps, "watch.every": max(1, steps // 3)}
    autoencoder = File(str(setting.weights["autoencoder"]))
    return {**SMALL, "steps": steps, "prompt": PROMPTS[dataset], "network.autoencoder": autoencoder}


def _given(setting: Setting) -> dict[str, Any]:
    """The paper's weights, where the user has them elsewhere than the hub."""
    named = {"network.weights": setting.weights.get("sd15"), "network.controlnet": setting.weights.get("controlnet")}
    return {key: File(value) for key, value in named.items() if value is not None}


def drawn(setting: Setting, objective: str, dataset: str, seed: int, pool: str = TRAIN) -> Job | Absent:
    """`synth sample`: one image for each mask of the pool."""
    model, data = trained(setting, objective, dataset, seed), divided(setting, dataset)
    if isinstance(model, Absent):
        return model
    assert isinstance(data, Job), "what was trained on is there"
    settings = {
        "model": Output(model),
        "data": Output(data, pool=pool),
        "seed": seed,
        "steps": DRAWING_STEPS[setting.scale],
    }
    return Job("synth sample", f"synth sample/{setting.scale}/{dataset}/{objective}/{pool}/seed {seed}", settings)


def segmenter(setting: Setting) -> dict[str, Any]:
    """The one segmenter of these tables: the paper's nnUNet row is a U-Net; drawn data get by with ORDER."""
    if setting.drawn:
        return DEMO_SEGMENTER
    return {**read_preset("seg train", setting.recipe), "model": "unet", "log": "none"}


def judge(setting: Setting, dataset: str) -> Job | Absent:
    """The frozen segmenter that looks for the lesions, trained on the real pairs."""
    data = divided(setting, dataset)
    if isinstance(data, Absent):
        return data
    settings = {**segmenter(setting), "data": Output(data, pool=TRAIN), "seed": 0}
    return Job("seg train", f"judge/{setting.scale}/{dataset}", settings, work=float(settings["epochs"]))


def recovered(setting: Setting, objective: str, dataset: str, seed: int) -> Job | Absent:
    """What the judge finds in the images, against the masks that made them."""
    images, looks = drawn(setting, objective, dataset, seed), judge(setting, dataset)
    if isinstance(images, Absent):
        return images
    assert isinstance(looks, Job), "what images were drawn from, a judge can be trained on"
    return _evaluated(setting, looks, Output(images), f"recovery/{setting.scale}/{dataset}/{objective}/seed {seed}")


def ceiling(setting: Setting, dataset: str) -> Job | Absent:
    """What the judge finds in held-out real images."""
    looks, data = judge(setting, dataset), divided(setting, dataset)
    if isinstance(looks, Absent) or isinstance(data, Absent):
        return looks if isinstance(looks, Absent) else data
    return _evaluated(setting, looks, Output(data, pool=HELD_OUT), f"recovery/{setting.scale}/{dataset}/real")


def downstream(setting: Setting, objective: str | None, dataset: str, seed: int, count: int | None) -> Job | Absent:
    """A segmenter on real and `count` synthetic pairs (None: all), judged on held-out real ones.

    objective: whose images; None: real alone. All come from the pool that seed 0 drew.
    """
    data = divided(setting, dataset)
    if isinstance(data, Absent):
        return data
    settings: dict[str, Any] = {"data": Output(data, pool=TRAIN), "seed": seed}
    kind = "real"
    if objective is not None:
        images = drawn(setting, objective, dataset, 0)
        if isinstance(images, Absent):
            return images
        settings |= {"synthetic": Output(images), "count": count}
        kind = f"{objective}-{'all' if count is None else count}"
    label = f"{setting.scale}/{dataset}/{kind}/seed {seed}"
    mixed = Job("mix", f"mix/{label}", settings)
    learnt = {**segmenter(setting), "data": Output(mixed, DATA), "split": Output(mixed, SPLIT), "seed": seed}
    model = Job("seg train", f"downstream/{label}", learnt, work=float(learnt["epochs"]))
    return _evaluated(setting, model, Output(data, pool=HELD_OUT), f"downstream evaluation/{label}")


def _evaluated(setting: Setting, model: Job, data: Output, label: str) -> Job:
    settings = {"model": Output(model), "data": data, "subset": "none", "resamples": 200 if setting.drawn else 2000}
    return Job("seg evaluate", label, settings, gpus=0.25)
