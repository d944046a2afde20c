"""The catalog on disk: strict YAML, every fault at once, nothing read that is not asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_configs import COUNTED, LLAMA_3_1_8B
from reading import read_trimmed as read_config

from kvreport.catalog import shelf
from kvreport.catalog.dump import dump_model
from kvreport.catalog.load import load_catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError, InputError
from kvreport.resources import data_dir


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small catalog: two models, two accelerators, the public formats, grid and engines."""
    public = data_dir()
    for name in ("formats.yaml", "grid.yaml"):
        shutil.copy(public / name, tmp_path / name)
    shutil.copytree(public / "engines", tmp_path / "engines")
    (tmp_path / "accelerators").mkdir()
    for name in ("h100-sxm-80gb", "l40s"):
        shutil.copy(public / "accelerators" / f"{name}.yaml", tmp_path / "accelerators")
    (tmp_path / "models").mkdir()
    write(tmp_path, read_config(LLAMA_3_1_8B, id="acme/one", aliases=("first", "uno")))
    write(tmp_path, read_config(LLAMA_3_1_8B, id="acme/two"))
    return tmp_path


def write(folder: Path, model: Model) -> Path:
    path = folder / "models" / f"{model.slug}.yaml"
    path.write_text(dump_model(model), encoding="utf-8")
    return path


def edit(folder: Path, old: str, new: str, name: str = "models/acme--one.yaml") -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def faults(folder: Path) -> list[str]:
    with pytest.raises(CatalogError) as caught:
        load_catalog(folder)
    return [str(fault) for fault in caught.value.faults]


def test_the_public_catalog_has_no_fault() -> None:
    catalog = load_catalog()
    assert len(catalog.models) >= 180
    assert len(catalog.accelerators) >= 90


def test_a_sound_catalog_loads(folder: Path) -> None:
    catalog = load_catalog(folder)
    assert list(catalog.models) == ["acme/one", "acme/two"]
    assert catalog.model("uno").id == "acme/one"


@pytest.mark.parametrize("model_id", COUNTED)
def test_a_model_written_and_read_back_is_the_same(tmp_path: Path, model_id: str) -> None:
    (tmp_path / "models").mkdir()
    model = read_config(COUNTED[model_id][0], id="a/b", notes=("#: {x}, 'y' \"z\" é", "- no"))
    path = write(tmp_path, model)
    assert validate(Model, read_yaml(path, "here"), "here") == model
    assert dump_model(model) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("hidden_size: 4096\n", "", "hidden_size: found nothing"),
        ("hidden_size: 4096", "hiden_size: 4096", "hiden_size: found 4096; allowed: no such field"),
        ("hidden_size: 4096", "hidden_size: -4096", "hidden_size: found -4096; allowed: greater than"),
        ("hidden_size: 4096", "hidden_size: '4096'", "hidden_size: found '4096'; allowed: a valid integer"),
        ("hidden_size: 4096", "hidden_size: 1e99", "hidden_size: found "),
        ("id: acme/one", "id: acme/three", "id: found 'acme/three'; allowed: the file name acme--three.yaml"),
        ("kv_heads: 8", "kv_headz: 8", "layers.0.caches.0.full.kv_headz: found 8"),
        ("schema_version: 1", "schema_version: 2", "schema_version: found 2; allowed: 1"),
        ('layers: "0-31"', 'layers: "0-30"', "layers: found 31 layers, but 32 x"),
        ('layers: "0-31"', 'layers: "1-31"', "must cover 0 to the last layer exactly once"),
        ("weight_format: bf16", "weight_format: fp7", "weight_format: found 'fp7'; allowed: one of"),
        ("name: one", "name: one\nname: two", "the key 'name' twice"),
        ("name: one", "name: &anchor one", "an anchor or alias in line 3"),
        ("name: one", "name: !!python/object:os.system one", "could not determine a constructor"),
        ("name: one", "name: !!map [one]", "constructor for the tag 'tag:yaml.org,2002:map' in line 3"),
        ("name: one", "name: {!!set {one}: 1}", "a key that is not a text"),
        ("name: one", "name: {<<: {a: 1}}", "a key that is not a text: '<<'"),
        ("name: one", "name: [one", "allowed: YAML"),
        ("name: one", "name: one\nrelease: 2024-07-01", "release: found '2024-07-01'; allowed: "),
    ],
)
def test_a_fault_names_file_field_found_and_allowed(folder: Path, old: str, new: str, expected: str) -> None:
    edit(folder, old, new)
    found = faults(folder)
    assert all(line.startswith("models/acme--one.yaml") for line in found)
    assert any(expected in line for line in found), found


def test_all_faults_of_all_files_come_at_once(folder: Path) -> None:
    edit(folder, "hidden_size: 4096", "hidden_size: -1")
    edit(folder, "vocabulary: 128256", "vocabulary: many")
    edit(folder, "context_tokens: 131072\n", "", "models/acme--two.yaml")
    edit(folder, "vendor:", "vendour:", "accelerators/l40s.yaml")
    found = faults(folder)
    assert len(found) >= 5
    for place in ("models/acme--one.yaml: hidden_size", "models/acme--one.yaml: vocabulary"):
        assert any(line.startswith(place) for line in found)
    assert any(line.startswith("models/acme--two.yaml: context_tokens") for line in found)
    assert any(line.startswith("accelerators/l40s.yaml: vendour") for line in found)


def test_a_name_that_means_two_things_is_a_fault(folder: Path) -> None:
    write(folder, read_config(LLAMA_3_1_8B, id="acme/two", aliases=("UNO",)))
    assert any("'UNO'" in line and "a unique name" in line for line in faults(folder))


def test_a_copy_does_not_take_the_name_of_its_model(folder: Path) -> None:
    """The last part of an id is that model's: another record whose weights are stored otherwise is not found by it."""
    write(folder, read_config(LLAMA_3_1_8B, id="acme/two", aliases=("One",)))
    load_catalog(folder)
    edit(folder, "weight_format: bf16", "weight_format: fp8", name="models/acme--two.yaml")
    (told,) = faults(folder)
    assert "'One'" in told
    assert "acme/one has this name, and its weights are bf16" in told


def test_a_file_that_is_no_yaml_file_is_a_fault(folder: Path) -> None:
    (folder / "models" / "acme--three.yml").write_text("id: acme/three\n", encoding="utf-8")
    assert faults(folder) == [
        "models/acme--three.yml: found another kind of file; allowed: names that end in .yaml"
    ]


def test_a_missing_part_is_a_fault(folder: Path) -> None:
    shutil.rmtree(folder / "accelerators")
    (folder / "grid.yaml").unlink()
    found = faults(folder)
    assert any(line.startswith("accelerators: found no such folder") for line in found)
    assert any(line.startswith("grid.yaml: ") for line in found)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no folder"):
        open_catalog(tmp_path / "nothing")


def test_one_model_is_read_without_reading_the_others(folder: Path) -> None:
    (folder / "models" / "acme--broken.yaml").write_text("nonsense: [", encoding="utf-8")
    catalog = open_catalog(folder)
    assert catalog.model("acme/one").id == "acme/one"
    assert catalog.model("acme--two").id == "acme/two"
    with pytest.raises(CatalogError):
        catalog.model("acme/broken")


def test_a_second_catalog_reads_what_has_changed_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, read = load_catalog(folder), []
    monkeypatch.setattr(shelf, "read_yaml", lambda path, where: read.append(where) or read_yaml(path, where))
    edit(folder, "uno", "eins")
    second = load_catalog(folder)
    assert [where for where in read if where.startswith("models/")] == ["models/acme--one.yaml"]
    assert second.model("acme/two") is first.model("acme/two")
    assert second.model("acme/one") != first.model("acme/one")


def test_an_unknown_name_is_answered_with_the_nearest(folder: Path) -> None:
    with pytest.raises(InputError, match=r"model: found 'acme/tow'; .*acme/two"):
        open_catalog(folder).model("acme/tow")
    with pytest.raises(InputError, match=r"accelerator: found 'h1000'"):
        open_catalog(folder).accelerator("h1000")


def test_a_file_beyond_reason_is_not_read(folder: Path) -> None:
    with (folder / "models" / "acme--one.yaml").open("ab") as file:
        file.truncate(5 << 20)
    assert any("at most 4,194,304 bytes" in line for line in faults(folder))


def test_values_nested_without_end_are_refused(folder: Path) -> None:
    edit(folder, "name: one", "name: " + "[" * 5_000 + "]" * 5_000)
    assert any(line.startswith("models/acme--one.yaml") for line in faults(folder))


@pytest.mark.parametrize("name", ["acme/mod\u00e8le", "acme/\u0663", "acm\u00e9/one"])
def test_an_id_is_ascii_as_the_hub_has_it(name: str) -> None:
    """A class of all letters of Unicode, repeated 190 times, also took 60 ms to compile in every process."""
    with pytest.raises(ValueError, match="id"):
        Model.model_validate({**read_config(LLAMA_3_1_8B, id="acme/one").model_dump(), "id": name})
