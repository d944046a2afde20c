"""``make sync``: records from files that state the dimensions, and a reason for every model that has none."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kvreport.catalog.load import dump_model, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import read_yaml, validate
from kvreport.resources import data_dir

CONFIGURATION = """
@auto_docstring(checkpoint="acme/Tiny-1B")
class TinyConfig(PreTrainedConfig):
    model_type = "tiny"
    base_model_tp_plan = {"layers": "colwise"}
    vocab_size: int = 128 * 1024
    hidden_size: int = 2048
    intermediate_size: int = 8192
    num_hidden_layers: int = 16
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 131072
    OPEN
    def __post_init__(self, **kwargs):
        if self.layer_types is None:
            self.layer_types = ["full_attention"] * self.num_hidden_layers

@auto_docstring(checkpoint="acme/Tiny-VL-1B")
class TinyVLConfig(PreTrainedConfig):
    model_type = "tiny_vl"
    sub_configs_defaults = {
        "vision_config": SubConfigSpec(config_class=AutoConfig, model_type="tiny_eye", init_kwargs={"depth": 3}),
        "text_config": TinyConfig,
    }
    vision_config: dict | PreTrainedConfig | None = None

class TinyEyeConfig(PreTrainedConfig):
    model_type = "tiny_eye"
    depth: int = 2
    kernel: tuple = (2, 2)
"""
AUTO = """
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("tiny", "LlamaForCausalLM")])
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = OrderedDict([("tiny_vl", "TinyVLForConditionalGeneration")])
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "tie_word_embeddings": True, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    sys.modules.pop("sync", None)
    import sync

    return sync


def package(root: Path, open_keys: str = "") -> Path:
    """Write a small package with transformers' layout."""
    models = root / "transformers" / "models"
    for path, text in {
        "tiny/configuration_tiny.py": CONFIGURATION.replace("OPEN", open_keys),
        "auto/modeling_auto.py": AUTO,
    }.items():
        (models / path).parent.mkdir(parents=True, exist_ok=True)
        (models / path).write_text(text, encoding="utf-8")
    return root


def recipe(root: Path, id_: str, **model: Any) -> Path:
    """Write one recipe as the checkout has it."""
    path = root / "models" / f"{id_}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    variant = {"copy": {"model_id": "acme/Copy-W8A8", "precision": "int8"}}
    made = {"meta": {"date_added": "2026-06-01"}, "model": {"model_id": id_, **model}, "variants": variant}
    path.write_text(json.dumps(made), encoding="utf-8")
    return root


def test_defaults_of_a_class_are_a_record_where_total_and_context_are_published(
    sync: Any, tmp_path: Path
) -> None:
    defaults = sync.ClassDefaults(package(tmp_path), "9.9", ())
    found = defaults.find("acme/Tiny-1B")
    stated = sync.Wanted("acme/Tiny-1B", "1.24B", 65536)
    made = sync.record(
        stated, sync.Found({**found.config, "vocab_size": 128256}, found.source, states_context=False)
    )
    model, said = made
    assert (model.context_tokens, model.architecture) == (65536, "LlamaForCausalLM")
    assert said.startswith("1.24B")
    title = next(source.title for source in model.sources if "layers" in source.covers)
    assert title.startswith(
        "transformers 9.9, transformers/models/tiny/configuration_tiny.py: the defaults of TinyConfig"
    )
    # A product is no constant, so the class has no such key, and the reader asks for it or counts another total.
    assert "vocab_size" not in found.config
    assert isinstance(sync.record(sync.Wanted("acme/Tiny-1B", "1.24B"), found), str)


@pytest.mark.parametrize("key", ["layer_types: list | None = None", "sliding_window: int | None = None"])
def test_a_class_that_leaves_the_layers_open_is_for_a_person(sync: Any, tmp_path: Path, key: str) -> None:
    found = sync.ClassDefaults(package(tmp_path, key), "9.9", ()).find("acme/Tiny-1B")
    assert found.open == (f"TinyConfig.{key.partition(':')[0]}",)
    assert "fills in" in sync.record(sync.Wanted("acme/Tiny-1B", "1.2B", 4096), found)


def test_sections_have_their_class_and_the_values_that_replace_its_own(sync: Any, tmp_path: Path) -> None:
    config = sync.ClassDefaults(package(tmp_path), "9.9", ()).find("acme/Tiny-VL-1B").config
    assert config["vision_config"] == {"model_type": "tiny_eye", "depth": 3, "kernel": [2, 2]}
    assert config["text_config"]["hidden_size"] == 2048


def test_only_classes_of_new_releases_are_looked_up_by_themselves(sync: Any, tmp_path: Path) -> None:
    assert sync.ClassDefaults(package(tmp_path), "9.9", ("LlamaForCausalLM",)).new == ["acme/Tiny-VL-1B"]


@pytest.mark.parametrize(
    ("stated", "config", "reason"),
    [
        ("1.2B", {}, None),
        ("8B", {}, "1.24B by its dimensions, published: 8B"),
        ("", {}, "published: nothing"),
        ("1.2B", {"num_key_value_heads": "many"}, "not read"),
    ],
)
def test_a_config_of_a_folder_is_a_record_or_a_reason(
    sync: Any, tmp_path: Path, stated: str, config: dict[str, Any], reason: str | None
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / "acme--Small-1B_config.json").write_text(json.dumps(CONFIG | config), encoding="utf-8")
    checkout = recipe(tmp_path / "recipes", "acme/Small-1B", parameter_count=stated)
    draft = sync.Draft()
    # A catalog without models: names are looked up in no file.
    (tmp_path / "data" / "models").mkdir(parents=True)
    shutil.copy(data_dir() / "formats.yaml", tmp_path / "data")
    sync.models(open_catalog(tmp_path / "data"), sync.recipes(checkout), [sync.ConfigFiles([copies])], draft)
    told = "\n".join(one for many in draft.person.values() for one in many)
    assert "acme/Copy-W8A8" in told
    if reason is not None:
        assert (draft.records, reason in told) == ([], True)
        return
    ((model, said),) = draft.records
    assert (model.id, model.release, said) == ("acme/Small-1B", "2026-06", "1.24B, published: 1.2B")
    assert {"layers", "release"} <= {field for source in model.sources for field in source.covers}
    (tmp_path / "made.yaml").write_text(dump_model(model), encoding="utf-8")
    assert validate(Model, read_yaml(tmp_path / "made.yaml", "made"), "made") == model


def test_without_a_registry_one_line_says_so(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "published", lambda _: [])

    def refuse(family: str, release: str, _: Path) -> None:
        raise SystemExit(f"follow: {family} {release}: no route")

    monkeypatch.setattr(sync.follow, "bring", refuse)
    draft = sync.Draft()
    assert sync.releases(data_dir(), tmp_path, draft) is None
    assert draft.releases == []
    assert sum("could not be asked" in note for note in draft.notes) == len(sync.DISTRIBUTIONS)
