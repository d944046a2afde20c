"""What the page "Your model" asks the library, natively: the same code runs in the browser."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import gettempdir

import pytest
from brought import CONFIG, GGUF_KEYS, gguf_file, gguf_header, gguf_tensors
from packed import printed

from kvreport import estimate
from kvreport.architectures import read_config
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.your_model import Session, YourModel
from kvreport.publish import python_runtime

CATALOG = open_catalog()


def written(config: dict[str, object] = CONFIG) -> dict[str, bytes]:
    return {"config.json": json.dumps(config).encode()}


def test_an_estimate_is_the_librarys() -> None:
    model = YourModel.read(written(), CATALOG, name="acme/open")
    assert model.model.id == "acme/open"
    found = model.estimate("h100-sxm-80gb", context_tokens=8192)
    ours = estimate(read_config(CONFIG), gpu="h100-sxm-80gb", context_tokens=8192).to_dict()
    assert found["command"] == ours["command"].replace("local/config", "acme/open")
    named = ("model", "command")
    assert {key: found[key] for key in ours if key not in named} == {
        key: value for key, value in ours.items() if key not in named
    }


def test_every_gpu_has_a_row_with_the_fewest_that_serve() -> None:
    model = YourModel.read(written(), CATALOG)
    rows = {row["id"]: row for row in model.gpus(context_tokens=8192)}
    assert set(rows) == set(CATALOG.accelerators)
    one = rows["h100-sxm-80gb"]
    assert one["gpus"] == 1
    assert one["requests"] == model.estimate("h100-sxm-80gb", context_tokens=8192)["max_concurrent_requests"]
    assert all(row["requests"] or row["reason"] or row["verdict"] != "fits" for row in rows.values())


def test_files_are_read_under_their_names() -> None:
    quantizer = {"bits": 4, "group_size": 64, "desc_act": False, "sym": True}
    files = {**written(), "quantize_config.json": json.dumps(quantizer).encode()}
    assert YourModel.read(files, CATALOG).model.weight_format == "gptq4-g64"
    other = YourModel.read({"my config.json": written()["config.json"]}, CATALOG)
    assert other.model.architecture == "Qwen3ForCausalLM"


def test_a_gguf_file_is_answered_with_its_own_tensors() -> None:
    model = YourModel.read({"tiny-Q4_K.gguf": gguf_file()}, CATALOG)
    found = model.estimate("h100-sxm-80gb", context_tokens=4096, engine="llama-cpp", tensor_parallel=1)
    assert found["engine"] == "llama-cpp"
    assert {row["gpus"] for row in model.gpus(context_tokens=4096, engine="llama-cpp")} <= {1, None}
    assert [name for name, _ in model.describe()["choices"]["engines"]] == ["llama-cpp", "ollama"]


def test_a_gguf_file_is_named_in_its_command_with_what_has_to_be_said_of_it() -> None:
    known = YourModel.read({"tiny Q4.gguf": gguf_file()}, CATALOG)
    assert known.describe()["source"] == "'tiny Q4.gguf'"
    assert known.describe()["assumptions"] == []
    found = known.estimate("h100-sxm-80gb", context_tokens=4096, engine="llama-cpp")
    assert (found["limited_by"], found["most_requests_flag"]) == ("max_num_seqs", "-c 4096")
    keys = {key.replace("llama.", "wonder."): value for key, value in GGUF_KEYS.items()}
    header = gguf_header({**keys, "general.architecture": "wonder"}, gguf_tensors())
    (said,) = YourModel.read({"odd.gguf": header}, CATALOG).describe()["assumptions"]
    assert said.startswith("architecture wonder is unknown")
    assert YourModel.read(written(), CATALOG).describe()["source"] == "config.json"


def test_a_checkpoint_of_another_engine_is_refused_with_its_name() -> None:
    exl2 = {**CONFIG, "quantization_config": {"quant_method": "exl2", "bits": 4.25, "head_bits": 6}}
    with pytest.raises(InputError, match="which ExLlamaV2 reads; allowed: ExLlamaV2, or the model"):
        YourModel.read(written(exl2), CATALOG).estimate("h100-sxm-80gb", context_tokens=4096)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "files: found 0"),
        ({"a.txt": b""}, "allowed: a config.json"),
        ({"a.gguf": b"GGUF", "b.gguf": b"GGUF"}, "found 2 GGUF files"),
        ({"a.gguf": b"GGUF"}, "inside its header"),
        ({"config.json": b"{"}, "config.json"),
        ({"../../config.json": b"{}", "x/config.json": b"{}"}, "files"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(files: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        YourModel.read(files, CATALOG)
    assert "\n" not in str(caught.value)
    assert gettempdir() not in str(caught.value)


def test_a_session_answers_texts() -> None:
    session = Session(CATALOG)
    assert "no model" in json.loads(session.question(json.dumps({"ask": "gpus", "options": {}})))["error"]
    said = json.loads(session.read({"files": written(), "name": ""}))["result"]
    assert said["parameters"] == sum(said["by_component"].values())
    assert said["record"].startswith("schema_version")
    question = {"ask": "estimate", "options": {"gpu": "no such", "context_tokens": 8192}}
    assert "no such" in json.loads(session.question(json.dumps(question)))["error"]
    missing = {key: value for key, value in CONFIG.items() if key != "num_hidden_layers"}
    assert "num_hidden_layers" in json.loads(session.read({"files": written(missing)}))["error"]
    assumed = json.loads(session.read({"files": written(missing), "assume_defaults": True}))["result"]
    assert any("num_hidden_layers" in sentence for sentence in assumed["assumptions"])


def test_a_gguf_repository_is_read_as_fetch_reads_it() -> None:
    session = Session(CATALOG)
    names = ["config.json", "mmproj-f16.gguf", "tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"]
    asked = {"repository": "acme/tiny-GGUF", "files": names}
    assert json.loads(session.parts(asked)) == {"result": ["tiny-Q4_K_M.gguf"]}
    asked["repository"] += ":q8_0"
    assert json.loads(session.parts(asked)) == {"result": ["tiny-Q8_0.gguf"]}
    asked["repository"] = "acme/tiny-GGUF:Q2_K"
    assert "allowed: Q4_K_M, Q8_0" in json.loads(session.parts(asked))["error"]

    file = gguf_file()
    name = "tiny-Q4_K_M.gguf"
    length = json.loads(session.header({"name": name, "first": file}))["result"]
    assert json.loads(session.header({"name": name, "first": file[: length - 1]})) == {"result": None}
    assert "GGUF" in json.loads(session.header({"name": name, "first": b"<html>" * 99}))["error"]

    given = {"files": {name: file[:length]}, "name": "acme/tiny-GGUF:Q4_K_M", "revision": "0123456789abcdef"}
    said = json.loads(session.read(given))["result"]
    assert said["id"] == "acme/tiny-GGUF-Q4_K_M"
    assert said["source"] == "acme/tiny-GGUF:Q4_K_M --fetch"
    assert said["assumptions"][0].endswith(f"the header of {name} in acme/tiny-GGUF, revision 01234567")
    assert not any("missing" in sentence for sentence in said["assumptions"])
    assert said["tensors"] == YourModel.read({name: file}, CATALOG).describe()["tensors"]


def test_the_archive_is_all_that_python_needs(tmp_path: Path) -> None:
    """The packed code answers on its own, without the checkout, numpy or a compiled YAML reader."""
    script = (
        "import json, pydantic_core, kvreport\n"
        "from kvreport.estimation.your_model import Session\n"
        "assert kvreport.__file__.startswith(sys.argv[1]), kvreport.__file__\n"
        "session = Session()\n"
        "session.read({'files': {'config.json': sys.argv[2].encode()}})\n"
        "print(session.question(json.dumps({'ask': 'estimate', 'options': {'gpu': 'H100', 'context_tokens': 8192}})))\n"
    )
    told = json.loads(printed(tmp_path, script, str(tmp_path), json.dumps(CONFIG)))
    ours = YourModel.read(written(), CATALOG).estimate("H100", context_tokens=8192)
    assert told["result"] == json.loads(json.dumps(ours, default=str))


def test_the_archive_depends_on_its_content_alone() -> None:
    assert python_runtime.archive() == python_runtime.archive()


def test_a_damaged_runtime_is_none(tmp_path: Path) -> None:
    assert python_runtime.RUNTIME.found(tmp_path) == {}
    assert list(python_runtime.files(tmp_path)) == []
    folder = tmp_path / python_runtime.RUNTIME.kept
    folder.mkdir()
    for name in python_runtime.RUNTIME.lock()["files"]:
        (folder / name).write_bytes(b"something else")
    assert python_runtime.RUNTIME.found(tmp_path) == {}
    assert python_runtime.RUNTIME.state(tmp_path) == ""


def test_the_pinned_core_is_the_one_that_pydantic_here_needs() -> None:
    import pydantic_core

    assert python_runtime.RUNTIME.lock()["pydantic_core"] == pydantic_core.__version__
