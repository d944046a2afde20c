"""``make sync``: records from files that state the dimensions, and a reason for every model that has none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_hub import FakeHub, serve

from kvreport.catalog.base import Source
from kvreport.catalog.dump import dump_model
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.resources import data_dir

UTILS = """
import json

def auto_docstring(checkpoint):
    return lambda made: made

class PreTrainedConfig:
    def __init__(self):
        for one in reversed(type(self).__mro__):
            for name in getattr(one, "__annotations__", {}):
                setattr(self, name, getattr(self, name))
        self.__post_init__()

    def __post_init__(self):
        pass

    def to_json_string(self, use_diff):
        parts = {name: value for name, value in vars(self).items()}
        parts["model_type"] = self.model_type
        return json.dumps(parts, default=lambda one: json.loads(one.to_json_string(use_diff)))
"""
CONFIGURATION = """
from transformers import PreTrainedConfig, auto_docstring

@auto_docstring(checkpoint="acme/Tiny-1B")
class TinyConfig(PreTrainedConfig):
    model_type = "tiny"
    vocab_size: int = 128256
    hidden_size: int = 2048
    intermediate_size: int = 8192
    num_hidden_layers: int = 16
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 131072
    OPEN
    def __post_init__(self, **kwargs):
        if getattr(self, "layer_types", ()) is None:
            self.layer_types = ["full_attention"] * self.num_hidden_layers

@auto_docstring(checkpoint="acme/Tiny-VL-1B")
class TinyVLConfig(PreTrainedConfig):
    model_type = "tiny_vl"
    text_config: TinyConfig | None = None
    def __post_init__(self, **kwargs):
        self.text_config = TinyConfig()

@auto_docstring(checkpoint="acme/Tiny-Broken-1B")
class TinyBrokenConfig(PreTrainedConfig):
    model_type = "tiny"
    def __post_init__(self, **kwargs):
        raise ValueError("no default")
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
        "../__init__.py": UTILS,
        "tiny/configuration_tiny.py": CONFIGURATION.replace("OPEN", open_keys),
        "auto/modeling_auto.py": AUTO,
    }.items():
        (models / path).parent.mkdir(parents=True, exist_ok=True)
        (models / path).write_text(text, encoding="utf-8")
    return root


def defaults(sync: Any, root: Path, open_keys: str = "", known: tuple[str, ...] = ()) -> Any:
    """Return the defaults that the script prints of such a package, whose code runs in another process."""
    package(root, open_keys)
    script = Path(sync.__file__).with_name("class_defaults.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    return sync.ClassDefaults(json.loads(done.stdout), root, "9.9", known)


def counted(id_: str, parameters: int, **told: Any) -> dict[str, Any]:
    """Return what a list says of a model."""
    source = Source(covers=("weights",), title="a list", evidence="secondary")
    return {"id": id_, "parameters": parameters, "counted": source, **told}


def recipe(root: Path, id_: str, **model: Any) -> Path:
    """Write one recipe as the checkout has it."""
    path = root / "models" / f"{id_}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    variant = {"copy": {"model_id": "acme/Copy-W8A8", "precision": "int8"}}
    made = {"meta": {"date_added": "2026-06-01"}, "model": {"model_id": id_, **model}, "variants": variant}
    path.write_text(json.dumps(made), encoding="utf-8")
    return root


FORMATS = open_catalog().weight_formats
TINY_PARAMETERS = 1235814400


def test_defaults_of_a_class_are_a_record_where_total_context_and_format_are_published(
    sync: Any, tmp_path: Path
) -> None:
    found = defaults(sync, tmp_path).find("acme/Tiny-1B")
    stated = sync.Wanted("acme/Tiny-1B", "1.24B", 65536, precision="bf16")
    model, said = sync.record(stated, found, FORMATS)
    assert (model.context_tokens, model.architecture) == (65536, "LlamaForCausalLM")
    assert said.startswith("1.24B")
    title = next(source.title for source in model.sources if "layers" in source.covers)
    assert title.startswith(
        "transformers 9.9, transformers/models/tiny/configuration_tiny.py: the defaults of TinyConfig"
    )
    # A class says nothing of the format that is stored, and its context may be another one than the checkpoint's.
    assert "stored format published: nothing" in sync.record(replace(stated, precision=""), found, FORMATS)
    assert "read as bf16, stored format published: fp8" in sync.record(
        replace(stated, precision="fp8"), found, FORMATS
    )
    assert "context" in sync.record(replace(stated, context=None), found, FORMATS)


def test_a_class_that_leaves_a_window_open_is_for_a_person(sync: Any, tmp_path: Path) -> None:
    found = defaults(sync, tmp_path, "sliding_window: int | None = None").find("acme/Tiny-1B")
    assert found.open == ("TinyConfig.sliding_window",)
    assert "open" in sync.record(sync.Wanted("acme/Tiny-1B", "1.2B", 4096, precision="bf16"), found, FORMATS)


@pytest.mark.parametrize("off", [0, 1, 200000])
def test_layers_that_code_fills_in_are_taken_where_the_parameters_were_counted(
    sync: Any, tmp_path: Path, off: int
) -> None:
    found = defaults(sync, tmp_path, "layer_types: list | None = None").find("acme/Tiny-1B")
    assert found.filled == ("TinyConfig.layer_types",)
    assert found.config["layer_types"] == ["full_attention"] * 16
    stated = sync.Wanted("acme/Tiny-1B", "1.24B", 4096, precision="bf16")
    assert "nobody counted" in sync.record(stated, found, FORMATS)
    made = sync.record(replace(stated, **counted("acme/Tiny-1B", TINY_PARAMETERS + off)), found, FORMATS)
    if off == 200000:
        assert "counted: 1,236,014,400" in made
        return
    assert "its code fills in layer_types" in made[0].sources[0].title
    assert made[0].sources[1].title == f"a list: {TINY_PARAMETERS + off:,} parameters"


def test_a_class_that_cannot_be_made_says_why(sync: Any, tmp_path: Path) -> None:
    made = defaults(sync, tmp_path)
    assert made.find("acme/Tiny-Broken-1B") == "its config class cannot be made (ValueError: no default)"
    assert made.find("acme/Tiny-VL-1B").config["text_config"]["hidden_size"] == 2048


def test_only_classes_of_new_releases_are_looked_up_by_themselves(sync: Any, tmp_path: Path) -> None:
    assert defaults(sync, tmp_path, known=("LlamaForCausalLM",)).new == ["acme/Tiny-VL-1B"]


def test_a_list_counts_what_recipes_and_classes_name_and_adds_what_many_like(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {
            "name": "acme/Tiny-1B",
            "parameters_raw": 7,
            "context_length": 9,
            "release_date": "2026-10-02",
            "hf_likes": 1,
        },
        {"name": "acme/Liked-1B", "parameters_raw": 8, "hf_likes": 5000, "release_date": "2026-09-01"},
        {"name": "acme/Liked-1B-GGUF", "parameters_raw": 8, "hf_likes": 5000, "release_date": "2026-09-01"},
        {"name": "acme/Old-1B", "parameters_raw": 8, "hf_likes": 5000, "release_date": "2026-06-01"},
        {"name": "acme/Unknown-1B", "parameters_raw": 8, "hf_likes": 2},
        {"name": "no id", "parameters_raw": 8, "hf_likes": 5000},
    ]
    program = tmp_path / "llmfit-1.0.data" / "scripts" / "llmfit"
    program.parent.mkdir(parents=True)
    program.write_bytes(b'ELF\x00[{"name": "x"}]\x00' + json.dumps(rows).encode() + b"tail\x00")
    monkeypatch.setattr(sync, "published", lambda _: ["0.9", "1.0"])
    monkeypatch.setattr(sync.follow, "bring", lambda *_: sync.follow.Package(tmp_path, "2026-10-05"))
    listed = sync.listed(tmp_path, sync.Draft())
    assert set(listed) == {row["name"] for row in rows[:5]}
    recipe_ = sync.Wanted("acme/Tiny-1B", "1B", 4096, "2026-10-03")
    tiny, liked = sync.merged([recipe_], None, listed)
    assert (tiny.parameters, tiny.context, tiny.day, tiny.stated) == (7, 4096, "2026-10-03", "1B")
    assert (liked.id, liked.parameters) == ("acme/Liked-1B", 8)


def test_ten_likes_are_enough_where_an_engine_serves_a_class_that_no_model_has(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class with a model in the catalog and a class of no engine are both looked for from 300 likes."""
    rows = [
        {"name": f"acme/{type_}-{likes}", "parameters_raw": 8, "hf_likes": likes, "architecture": type_}
        | {"release_date": "2026-10-01"}
        for type_ in ("gigachat3_5", "llama", "fly")
        for likes in (9, 10, 300)
    ]
    program = tmp_path / "llmfit-1.0.data" / "scripts" / "llmfit"
    program.parent.mkdir(parents=True)
    program.write_bytes(json.dumps(rows).encode())
    monkeypatch.setattr(sync, "published", lambda _: ["1.0"])
    monkeypatch.setattr(sync.follow, "bring", lambda *_: sync.follow.Package(tmp_path, "2026-10-05"))
    catalog = open_catalog(data_dir())
    assert "gigachat35" not in sync.first_types(data_dir(), catalog), "the catalog has a model of it"
    others = {id_: one for id_, one in catalog.models.items() if one.architecture != "GigaChat35ForCausalLM"}
    first = sync.first_types(data_dir(), SimpleNamespace(models=others))
    assert "gigachat35" in first
    found = {id_ for id_, one in sync.listed(tmp_path, sync.Draft(), first).items() if one.liked}
    assert found == {"acme/gigachat3_5-10", "acme/gigachat3_5-300", "acme/llama-300", "acme/fly-300"}


def test_a_registry_names_what_it_changed_lately_and_no_copies(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spec(id_: str, format_: str = "pytorch") -> dict[str, Any]:
        return {"model_format": format_, "model_src": {"huggingface": {"model_id": id_}}}

    day = 24 * 3600
    entries: dict[str, Any] = {
        "llm/models/new.json": [
            {"updated_at": 1000 * day, "model_specs": [spec("acme/New"), spec("acme/New-AWQ", "awq")]}
        ],
        "embedding/models/embedder.json": {"updated_at": 950 * day, "model_specs": [spec("acme/Embedder")]},
        "llm/models/old.json": {"updated_at": 900 * day, "model_specs": [spec("acme/Old")]},
        "llm/models/broken.json": {"model_specs": [spec("acme/Broken")]},
        "llm/models/copy.json": {
            "updated_at": 1000 * day,
            "model_specs": [spec("acme/New-FP8", "fp8"), spec("acme/{size}"), spec("acme/N-GGUF", "ggufv2")],
        },
    }
    for path, made in entries.items():
        file = tmp_path / "xinference" / "model" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(made), encoding="utf-8")
    monkeypatch.setattr(sync, "published", lambda _: ["1.0"])
    monkeypatch.setattr(sync.follow, "bring", lambda *_: sync.follow.Package(tmp_path, "2026-10-05"))
    named = sync.registered(tmp_path, sync.Draft())
    assert [one.id for one in named] == ["acme/Embedder", "acme/New"]


@pytest.mark.parametrize("tied", [True, False])
def test_a_list_states_the_dimensions_of_a_dense_decoder(sync: Any, tied: bool) -> None:
    """By hand: two layers of width 64 with four heads of 16, one of them for keys and values, and MLPs of 128."""
    layer = 2 * 64 * 64 + 2 * 16 * 64 + 3 * 128 * 64 + 2 * 64
    parameters = 2 * layer + (1 if tied else 2) * 100 * 64 + 64
    row = {
        "architecture": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "hidden_size": 64,
        "vocab_size": 100,
        "moe_intermediate_size": 128,
        "context_length": 4096,
    }
    source = sync.Source(covers=("weights",), title="a list: acme/Dense", evidence="secondary")
    config = sync._listed_config(row)
    exact = sync.Wanted("acme/Dense", parameters=parameters, counted=source, config=config)
    other = sync.Wanted("acme/Other", parameters=parameters + 1, counted=source, config=config)
    place = sync.ListedDimensions({one.id: one for one in (exact, other)})
    found = place.find("acme/Dense")
    assert found.config["tie_word_embeddings"] is tied
    made, said = sync.record(exact, found, {})
    assert (made.context_tokens, made.weight_format) == (4096, "bf16")
    assert said == f"{parameters:,} parameters, counted: {parameters:,}"
    assert "other parameters" in place.find("acme/Other")
    assert place.find("acme/Unlisted") is None
    assert sync._listed_config({**row, "architecture": "qwen2"}) is None, "its class may have windows"
    assert sync._listed_config({**row, "head_dim": None}) is None


def test_a_config_of_the_hub_is_held_against_its_index(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    size = {"acme/Right": 2 * TINY_PARAMETERS, "acme/Wrong": TINY_PARAMETERS}
    files = {
        id_: {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors.index.json": json.dumps(
                {"metadata": {"total_size": n}, "weight_map": {}}
            ).encode(),
        }
        for id_, n in size.items()
    }
    with serve(FakeHub(files)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        place = sync.Hub()
        model, said = sync.record(sync.Wanted("acme/Right"), place.find("acme/Right"), FORMATS)
        assert "2,471,628,800 bytes, the repository's index: 2,471,628,800" in said
        assert model.sources[0].evidence == "verbatim"
        assert "acme/Right" in (model.sources[0].url or "")
        refused = sync.record(sync.Wanted("acme/Wrong"), place.find("acme/Wrong"), FORMATS)
        assert "the repository's index: 1,235,814,400" in refused
        assert "no such repository" in place.find("acme/None")
    # Without an answer nothing more is asked, and the next place is looked at.
    assert place.find("acme/Later") is None
    assert "no connection" in place.silent


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


def test_a_model_with_a_new_record_leaves_the_list_of_known_names(sync: Any, tmp_path: Path) -> None:
    names = tmp_path / "known_names.yaml"
    shutil.copy(data_dir() / "known_names.yaml", names)
    old = names.read_text(encoding="utf-8")
    one, *_ = (one.id for one in open_catalog(data_dir()).known_names.models if one.kind == "unread")
    sync.forget(names, {one, "acme/Unlisted"})
    left = names.read_text(encoding="utf-8")
    assert f"id: {one}," in old
    assert f"id: {one}," not in left
    assert old.count("\n") - left.count("\n") == 1


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
