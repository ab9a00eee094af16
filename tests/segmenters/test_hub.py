"""Models as folders: there and back, refusals, the model card, and folders of older versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub.hub_mixin
import pytest
import torch
from huggingface_hub import ModelCard
from huggingface_hub.errors import RemoteEntryNotFoundError
from safetensors.torch import load_file

import laworder.order.hub
from laworder import ORDER, create, list_models
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.segmenters import About, Preprocessing, from_pretrained

FROZEN = Path(__file__).parents[1] / "golden" / "segmenters_v1"

ABOUT = About(
    data="Kvasir-SEG, 900 images",
    recipe="best, 100 epochs, seed 0",
    metrics={"Dice, held-out test": 0.815},
    intended_use="Research on colonoscopy frames.",
)


def wave() -> torch.Tensor:
    """An image that no random number generator has a say in."""
    y, x = torch.meshgrid(torch.arange(70), torch.arange(64), indexing="ij")
    return torch.stack([torch.sin(0.1 * (c + 1) * x + 0.07 * y) for c in range(3)])[None]


def trained(name: str = "order_01", **settings) -> Segmenter:
    """A model whose batch-norm statistics and descriptions are not the defaults."""
    model = create(name, **settings)
    model.train()(torch.randn(2, model.in_channels, 64, 64))
    model.preprocessing = Preprocessing(size=352, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), threshold=0.4)
    model.about = ABOUT
    return model.eval()


@pytest.mark.parametrize("name", list_models())
def test_every_model_comes_back_from_its_folder(name: str, tmp_path: Path) -> None:
    model = trained(name)
    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    assert type(again) is type(model)
    assert again.origin is not None
    assert again.origin.name == name
    assert not again.training
    assert (again.preprocessing, again.about) == (model.preprocessing, ABOUT)
    for (key, ours), theirs in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), key
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("order_12", {"heads": 4, "in_channels": 1, "classes": 3}),
        ("order_cbam", {"stages": [2], "widths": [6, 8, 10, 12]}),
        ("order_01", {"spatial_dims": 3}),
        ("mkunet_s", {"in_channels": 2}),
    ],
)
def test_settings_come_back(name: str, settings: dict, tmp_path: Path) -> None:
    model = create(name, **settings)
    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    x = torch.randn(1, model.in_channels, *[32] * model.spatial_dims)
    assert torch.equal(again(x), model.eval()(x))


def test_the_class_has_the_mixin_s_own_door(tmp_path: Path) -> None:
    model = trained(stages=(1, 3))
    model.save_pretrained(tmp_path)
    again = ORDER.from_pretrained(tmp_path)
    assert torch.equal(again(wave()), model(wave()))
    assert again.preprocessing == model.preprocessing
    assert again.origin is not None
    assert again.origin.name == "order_01"


def test_a_model_built_by_its_class_is_saved_too(tmp_path: Path) -> None:
    model = ORDER(stages=(2,), heads=1).eval()
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["name"] is None
    assert torch.equal(from_pretrained(tmp_path)(wave()), model(wave()))


def test_every_setting_is_written_down_so_that_new_defaults_change_nothing(tmp_path: Path) -> None:
    create("order_12").save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["settings"]
    assert saved["stages"] == [1, 2]
    assert saved["widths"] == [4, 8, 16, 24, 32]
    assert (saved["heads"], saved["head_width"]) == (2, 32)


def test_a_path_to_initial_weights_is_not_needed_again(tmp_path: Path) -> None:
    create("pranet").save_pretrained(tmp_path)
    assert "backbone_weights" not in json.loads((tmp_path / "config.json").read_text())["settings"]


def test_the_model_card_says_what_it_must(tmp_path: Path) -> None:
    trained().save_pretrained(tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "laworder"
    assert card.data.pipeline_tag == "image-segmentation"
    for part in (
        "order_01",
        "Not a medical device",
        ABOUT.data,
        ABOUT.recipe,
        ABOUT.intended_use,
        "| Dice, held-out test | 0.815 |",
        "352²",
        "from_pretrained",
    ):
        assert part in card.text, part


def test_the_model_card_admits_what_was_not_stated(tmp_path: Path) -> None:
    create("order_01").save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text().count("Not stated") == 4


def test_preprocessing_is_applied_channel_by_channel() -> None:
    x = torch.rand(2, 3, 4, 5)
    out = Preprocessing(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0)).normalise(x)
    torch.testing.assert_close(out[:, 2], (x[:, 2] - 0.3) / 4)
    assert len(create("order_01", in_channels=4).preprocessing.mean) == 4


def test_a_folder_of_the_first_format_loads() -> None:
    """Frozen when format 1 was new; never regenerate it, add the next format beside it."""
    expected = json.loads((FROZEN / "expected.json").read_text())
    for model in (from_pretrained(FROZEN), ORDER.from_pretrained(FROZEN)):
        out = model(wave())
        assert list(out.shape) == expected["shape"]
        values = torch.tensor(expected["values"])
        torch.testing.assert_close(out.flatten()[:: out.numel() // 16], values, rtol=1e-4, atol=1e-4)
        assert model.preprocessing == Preprocessing(size=352, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), threshold=0.4)
        assert model.about.metrics == {"Dice, held-out test": 0.815}


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    model = create("order_01")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    for load in (from_pretrained, ORDER.from_pretrained):
        with pytest.raises(UserError, match=r"no model\.safetensors; pytorch_model\.bin can run any code"):
            load(tmp_path)
    with pytest.raises(UserError, match="is a file; give the folder"):
        from_pretrained(tmp_path / "pytorch_model.bin")


def edited(folder: Path, **changes) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_mistakes_are_named(tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path / "a")
    folder = tmp_path / "a"
    with pytest.raises(UserError, match="newer than this version's 1: upgrade laworder"):
        from_pretrained(edited(folder, format=99))
    with pytest.raises(UserError, match="unknown model 'order_10'; did you mean 'order_"):
        from_pretrained(edited(folder, format=1, name="order_10"))
    with pytest.raises(UserError, match="names the class 'ORDAR'; did you mean 'ORDER'"):
        from_pretrained(edited(folder, name=None, **{"class": "ORDAR"}))
    with pytest.raises(UserError, match=r"holds a UNet, not ORDER"):
        ORDER.from_pretrained(edited(folder, **{"class": "UNet"}))
    with pytest.raises(UserError, match=r"does not hold the weights that config\.json describes"):
        from_pretrained(edited(folder, name="order_backbone", settings={}))
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        from_pretrained(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"has no config\.json of laworder"):
        from_pretrained(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no config\.json"):
        from_pretrained(tmp_path / "empty")


def test_broken_weights_are_named(tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UserError, match="does not hold the weights"):
        from_pretrained(tmp_path / "a")


def test_a_setting_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="stages of this ORDER cannot be saved"):
        ORDER(stages=range(2)).save_pretrained(tmp_path)


class Hub:
    """Stands in for the Hub: one repository, a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def api(self, **_: object) -> Hub:
        return self

    def create_repo(self, repo_id: str, **_: object) -> Hub:
        self.repo_id = repo_id
        return self

    def upload_folder(self, *, folder_path: Path, **_: object) -> str:
        shutil.copytree(folder_path, self.folder, dirs_exist_ok=True)
        return "commit"

    def download(self, *, filename: str, **_: object) -> str:
        if not (self.folder / filename).is_file():
            raise RemoteEntryNotFoundError(f"no {filename}", response=_Response())
        return str(self.folder / filename)


class _Response:
    """What huggingface_hub reads of an HTTP answer when it words an error."""

    headers: dict[str, str] = {}  # noqa: RUF012
    request = None
    status_code = 404
    text = ""


def test_push_and_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub.hub_mixin, "HfApi", hub.api)
    monkeypatch.setattr(huggingface_hub.hub_mixin, "hf_hub_download", hub.download)
    monkeypatch.setattr(laworder.order.hub, "hf_hub_download", hub.download)
    model = trained()
    model.push_to_hub("someone/order")
    assert sorted(p.name for p in hub.folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert load_file(hub.folder / "model.safetensors").keys() == model.state_dict().keys()
    for load in (from_pretrained, ORDER.from_pretrained):
        assert torch.equal(load("someone/order")(wave()), model(wave()))
    (hub.folder / "model.safetensors").rename(hub.folder / "pytorch_model.bin")
    for load in (from_pretrained, ORDER.from_pretrained):
        with pytest.raises(UserError, match=r"on the Hub has no model\.safetensors"):
            load("someone/order")
