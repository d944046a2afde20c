"""Model classes by list: what each release's package serves, how the lists are read, and what they refuse."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from record_files import observed
from trunk import launch

import kvreport
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.support_lookup import RUNS, class_note, codes, judge, lacks_class, nearest_class
from kvreport.catalog.engine_classes import (
    Classes,
    ClassLists,
    compressed,
    is_unreleased,
    release_key,
    written,
)
from kvreport.catalog.load import open_catalog
from kvreport.catalog.release import oldest_computed
from kvreport.dataset.grid import axes
from kvreport.dataset.kept import axes_digest
from kvreport.dataset.matrix import matrix
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.size import size
from kvreport.publish import python_runtime
from kvreport.publish.page_data import gather
from kvreport.site.pages.model.headline import headline, plain
from scripts import read_engine_classes as read

FAMILIES = ("vllm", "sglang", "tensorrt_llm", "transformers", "mlx")
ENGINES = {"tensorrt_llm": "tensorrt-llm"}
DEVICES = {"mlx": "m3-ultra-512"}


@pytest.fixture(scope="module")
def lists(catalog) -> ClassLists:
    return ClassLists(catalog.folder)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def plainly(folder: Path, family: str) -> dict[str, tuple[set[str], set[str], str, list[str], list[str]]]:
    """What each read release serves, added up from the file's text alone."""
    data = json.loads((folder / "engines" / family / "classes.yaml").read_text(encoding="utf-8"))
    own: set[str] = set()
    backend: set[str] = set()
    transformers, endings, pooled = "", [], []
    found = {}
    for change in data["changes"]:
        own = (own - set(change.get("remove", ()))) | set(change.get("add", ()))
        backend = (backend - set(change.get("backend_remove", ()))) | set(change.get("backend_add", ()))
        transformers = change.get("transformers", transformers)
        endings, pooled = change.get("endings", endings), change.get("pooled_endings", pooled)
        for release in change["at"]:
            found[release] = (own, backend, transformers, endings, pooled)
    return found


def at(catalog, family: str, release: str):
    engine = catalog.engine(ENGINES.get(family, family))
    return engine.model_copy(update={"version": release, "label": f"{family} {release}"})


# --- the data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_differences_add_up_to_the_lists_that_were_read(catalog, lists, family):
    listed = lists.of(family)
    assert not list(listed.wrong_digests())
    path = catalog.folder / "engines" / family / "classes.yaml"
    assert path.read_text(encoding="utf-8") == written(listed), "as the script writes it"
    assert compressed(
        {n: s for c, s in zip(listed.changes, listed.states(), strict=True) for n in c.at}
    ) == tuple(listed.changes)


def test_every_release_that_the_project_knows_was_read(catalog, lists):
    for family in ("vllm", "sglang"):
        had = {name for change in lists.of(family).changes for name in change.at}
        text = (catalog.folder / f"{family}_releases.yaml").read_text(encoding="utf-8")
        known = yaml.safe_load(text)["releases"]
        assert {one for one in known if oldest_computed(catalog.engines.values(), family, one) is None} <= had
    for engine in catalog.engines.values():
        if engine.family in FAMILIES and engine.family != "tensorrt_llm":
            had = {name for change in lists.of(engine.family).changes for name in change.at}
            assert engine.version in had, engine.name


def test_a_wrong_digest_and_a_wrong_family_are_faults(catalog, tmp_path):
    shutil.copytree(catalog.folder / "engines", tmp_path / "engines")
    path = tmp_path / "engines/mlx/classes.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"AfmoeForCausalLM", ', "", 1), encoding="utf-8")
    (tmp_path / "engines/sglang/classes.yaml").write_text(text, encoding="utf-8")
    faults = [str(fault) for fault in open_catalog(tmp_path).faults()]
    assert any("engines/mlx/classes.yaml" in one and "digest of 0.32.0" in one for one in faults)
    assert any("engines/sglang/classes.yaml" in one and "family" in one for one in faults)


def test_a_folder_without_a_list_next_to_the_engines_is_still_a_fault(catalog, tmp_path):
    shutil.copytree(catalog.folder / "engines", tmp_path / "engines")
    (tmp_path / "engines/nothing").mkdir()
    assert any("engines/nothing" in str(fault) for fault in open_catalog(tmp_path).faults())


def test_the_browser_bundle_has_the_lists():
    files = {name for name, _ in python_runtime._data()}
    assert {f"kvreport/_data/engines/{family}/classes.yaml" for family in FAMILIES} <= files


def test_releases_are_compared_as_engines_count_them():
    ordered = ["0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.10.1", "0.10.1.1", "0.10.2", "5.0.0"]
    assert sorted(ordered, key=release_key) == ordered
    assert release_key("v0.33") == release_key("0.33.0")
    assert release_key("0.23.1rc1.dev531+ga65f93fb2") == release_key("0.23.1")
    assert is_unreleased("0.23.1rc1.dev531+ga65")
    assert not is_unreleased("0.5.10.post1")
    assert not is_unreleased("0.28.0+cu129")


def test_a_build_between_releases_is_in_no_list(lists):
    listed = lists.of("vllm")
    assert listed.served("0.28.1.dev5") is None
    assert listed.served("0.8.5") is None
    assert listed.served("0.22") == listed.served("0.22.1") != listed.served("0.22.0")
    assert listed.served("0.99").own == listed.served(None).own


# --- the judgement ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_no_class_outside_the_list_of_any_release_runs(catalog, family):
    """Every model of the catalog on every release that was read, against the lists' own text."""
    device = catalog.accelerator(DEVICES.get(family, "b300-sxm-288gb"))
    able = {release: found[1] for release, found in plainly(catalog.folder, "transformers").items()}
    outside = 0
    for release, (own, backend, transformers, endings, pooled) in plainly(catalog.folder, family).items():
        engine = at(catalog, family, release)
        ruling = catalog.support.ruling(family, release)
        for model in {one.architecture: one for one in catalog.models.values()}.values():
            name = model.architecture
            ending = next((one for one in pooled if name.endswith(one)), None)
            listed = (
                name in own
                or (family != "transformers" and name in backend)
                or (ending and any(name.removesuffix(ending) + one in own for one in endings))
                or (transformers and name in able[transformers])
            )
            if not listed:
                outside += 1
                found = judge(launch(catalog, engine), device, model)
                assert found.verdict == "engine_does_not_run", (family, release, name)
                assert name in found.reason or device.name in found.reason
                assert (
                    codes(launch(catalog, engine), catalog.support, [device], model, [None])[0][0]
                    == found.code
                )
            elif name in own:
                assert not lacks_class(ruling, engine, model), (family, release, name)
    assert outside


def test_every_observed_start_stays_allowed(catalog, lists):
    """What started somewhere is the truth: no list may refuse its class."""
    judged = 0
    for seen in observed():
        name = seen.shapes_of or seen.model_id
        if (
            seen.engine not in ("vllm", "sglang", "tensorrt_llm", "mlx")
            or name is None
            or seen.engine_version is None
        ):
            continue
        try:
            model = catalog.model(seen.model_id or name)
        except InputError:
            try:
                model = catalog.model(name)
            except InputError:
                continue
        listed = lists.of(seen.engine)
        version = seen.engine_version
        if "(" in version:  # A build between releases, by its day: no list says what it had.
            continue
        if not release_key(version)[1] or listed.served(version) is None:
            continue
        judged += 1
        engine = at(catalog, seen.engine, version)
        assert not lacks_class(catalog.support.ruling(seen.engine, version), engine, model), (
            seen.id,
            version,
        )
    assert judged > 250


def test_what_ran_under_mlx_stays_allowed(catalog):
    text = (catalog.folder / "llama_cpp/mlx_check.yaml").read_text(encoding="utf-8")
    ran = {row["model"] for row in yaml.safe_load(text)["rows"]}
    mlx = catalog.engine("mlx")
    ruling = catalog.support.ruling("mlx", mlx.version)
    assert len(ran) > 5
    assert not [name for name in ran if lacks_class(ruling, mlx, catalog.model(name))]


LACKED = (
    "deepseek-ai/DeepSeek-V4-Flash",
    "Qwen/Qwen3.8-Flash-Next",
    "zai-org/GLM-5.3-Flash",
    "thinkingmachines/Inkling-Small",
    "tencent/Hy3-preview",
    "IFM/K2-Horizon-3.7B",
    "xai-org/grok-1",
    "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "ai-sage/GigaChat3.5-432B-A28B-Reasoning",
    "inceptionai/Jais-2-8B-Chat",
    "bigscience/bloom",
    "google/vaultgemma-1b",
    "mosaicml/mpt-7b",
    "RWKV/rwkv-5-world-3b",
)
"""Models whose ``model_type`` has no module in mlx-lm 0.32.2, found by trying each."""


@pytest.mark.parametrize("name", LACKED)
def test_a_model_without_a_module_does_not_run_in_mlx(name):
    found = kvreport.estimate(name, gpu="m3-ultra-512", engine="mlx", weights="mlx4-g64", context_tokens=1024)
    assert (found.verdict, found.max_concurrent_requests) == ("engine_does_not_run", 0)
    assert "mlx-lm does not have the class" in found.verdict_reason


def test_no_row_of_the_dataset_runs_a_class_that_the_engine_lacks(catalog):
    chosen = axes(catalog, models=",".join(LACKED), gpus="m3-ultra-512", engine="mlx", contexts=[1024])
    rows = 0
    for cube in matrix(chosen):
        verdicts = cube.values["verdict"][cube.possible]
        assert (verdicts == Verdict.ENGINE_DOES_NOT_RUN).all(), cube.model.id
        assert not cube.values["max_concurrent_requests"][cube.possible].any()
        rows += verdicts.size
    assert rows


def test_rows_that_are_kept_are_computed_anew_when_a_list_changes(catalog, tmp_path):
    shutil.copytree(catalog.folder / "engines", tmp_path / "engines")
    shutil.copyfile(catalog.folder / "support.yaml", tmp_path / "support.yaml")
    chosen = axes(catalog, models="Qwen/Qwen3-8B", gpus="h100-sxm-80gb", contexts=[1024])
    before = axes_digest(replace(chosen, support=open_catalog(tmp_path).support))
    assert before == axes_digest(chosen)
    path = tmp_path / "engines/vllm/classes.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert axes_digest(replace(chosen, support=open_catalog(tmp_path).support)) != before


def test_a_refusal_names_the_releases_that_have_the_class(catalog):
    found = kvreport.estimate(
        "Qwen/Qwen3.8-Flash-Next", gpu="h200", engine="vllm@0.28.0", context_tokens=1024
    )
    assert found.verdict == "engine_does_not_run"
    assert found.verdict_reason.endswith("releases from 0.29.0 on do")
    gone = kvreport.estimate("mosaicml/mpt-7b", gpu="h100", engine="vllm@0.28.0", context_tokens=1024)
    assert gone.verdict == "fits"
    model = catalog.model("mosaicml/mpt-7b")
    reason = judge(launch(catalog, "vllm"), catalog.accelerator("h100"), model).reason
    assert reason.endswith("releases from 0.9.0 to 0.28.0 do")


def test_a_class_that_a_checkpoint_may_bring_is_said_to_be_unjudged():
    found = kvreport.estimate("Qwen/Qwen-7B", gpu="h100", engine="transformers", context_tokens=1024)
    assert found.verdict == "engine_does_not_run"
    assert found.verdict_reason.endswith("own code (trust_remote_code) may run it, which is not judged")


def test_llama_cpp_names_the_nearest_class_that_it_converts():
    with pytest.raises(
        InputError, match=r"converts no GigaChat35ForCausalLM; allowed: a class of its conversion scripts, or"
    ):
        kvreport.estimate("ai-sage/GigaChat3.5-432B-A28B-Reasoning", gpu="m3-ultra-512", engine="llama-cpp")
    with pytest.raises(InputError, match=r"converts no HunYuanForCausalLM; .* \(the nearest is HunYuan\w+\)"):
        kvreport.estimate("tencent/Tencent-Hunyuan-Large", gpu="m3-ultra-512", engine="llama-cpp")


def test_a_release_newer_than_the_lists_is_refused_with_that_reason(catalog):
    model = catalog.model("Qwen/Qwen3-8B").model_copy(update={"architecture": "Qwen9ForCausalLM"})
    reason = judge(launch(catalog, "vllm@0.34.0"), catalog.accelerator("h100"), model).reason
    assert reason.endswith("(the newest release that was read is 0.33.0)")


def test_the_nearest_class_is_of_the_same_family_or_none_is_named(lists):
    own = lists.of("vllm").served(None).own
    assert nearest_class("FooForCausalLM", own) is None
    assert nearest_class("CLIPTextModelWithBias", own) in (None, "CLIPModel", "CLIPEmbeddingModel")
    assert nearest_class("Qwen3NextNextForCausalLM", own) == "Qwen3NextForCausalLM"
    assert nearest_class("GraniteMoeTinyForCausalLM", own).startswith("GraniteMoe")
    for name in sorted(own):
        near = nearest_class(f"{name}", own - {name})
        assert near is None or near[:3] == name[:3], (name, near)


def test_what_the_transformers_backend_runs_says_so_and_states_do_not_run_there(catalog):
    listed = kvreport.estimate("allenai/OLMo-2-1124-7B", gpu="h100", context_tokens=2048)
    assert listed.verdict == "fits"
    assert any("Transformers backend" in said for said in listed.request.assumptions)
    unlisted = kvreport.estimate(
        "upstage/Solar-Open-100B", gpu="h200", tensor_parallel=4, context_tokens=2048
    )
    assert any("Transformers backend (transformers 5.20.2)" in said for said in unlisted.request.assumptions)
    hybrid = catalog.model("google/recurrentgemma-2b")
    reason = judge(launch(catalog, "vllm"), catalog.accelerator("h100"), hybrid).reason
    assert "only models with attention in every layer" in reason
    own = kvreport.estimate("Qwen/Qwen3-8B", gpu="h100", context_tokens=2048)
    newer = kvreport.estimate("google/gemma-4-12B-it", gpu="h100", engine="vllm@0.22.0", context_tokens=2048)
    assert newer.verdict_reason.endswith(
        "may with transformers 5.10.4 or newer; kvreport does not check this"
    )
    assert not any("class " in said for said in own.request.assumptions)


def test_a_pooling_class_is_served_by_the_class_that_it_is_looked_up_as(catalog):
    model = catalog.model("Qwen/Qwen3-8B").model_copy(
        update={"architecture": "Qwen3ForSequenceClassification"}
    )
    device = catalog.accelerator("h100")
    assert judge(launch(catalog, "vllm"), device, model) == RUNS
    writes = model.model_copy(update={"architecture": "Llama4VisionForCausalLM"})
    assert judge(launch(catalog, "vllm"), device, writes).verdict == "engine_does_not_run"


def test_a_config_of_an_unlisted_class_gets_the_same_judgement(tmp_path):
    config = {
        "architectures": ["RwkvForCausalLM"],
        "attention_hidden_size": 2560,
        "context_length": 1024,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "rwkv",
        "num_hidden_layers": 32,
        "vocab_size": 50277,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    for engine in ("vllm", "sglang", "mlx"):
        gpu = "m3-ultra-512" if engine == "mlx" else "h100"
        found = kvreport.estimate(str(path), gpu=gpu, engine=engine, context_tokens=512)
        assert found.verdict == "engine_does_not_run"
        assert "does not have the class RwkvForCausalLM" in found.verdict_reason


def test_sizing_refuses_a_class_with_the_reason_that_an_estimate_gives():
    with pytest.raises(InputError, match="mlx-lm does not have the class DeepseekV4ForCausalLM"):
        size("deepseek-ai/DeepSeek-V4-Flash", gpus=["m3-ultra-512"], engine="mlx", context=1024, concurrent=1)


def test_a_catalog_without_lists_judges_no_class_and_says_so(catalog, tmp_path):
    shutil.copytree(
        catalog.folder, tmp_path / "data", ignore=shutil.ignore_patterns("classes.yaml", "observations")
    )
    bare = open_catalog(tmp_path / "data")
    found = kvreport.estimate(
        "Qwen/Qwen3.8-Flash-Next", gpu="h200", engine="vllm@0.28.0", context_tokens=1024, catalog=bare
    )
    assert found.verdict_reason == ""
    assert any("not checked, no list says" in said for said in found.request.assumptions)
    (tmp_path / "data/support.yaml").unlink()
    model, vllm = catalog.model("Qwen/Qwen3-8B"), catalog.engine("vllm")
    assert "not checked" in class_note(None, vllm, model)
    assert not class_note(None, catalog.engine("ceiling"), model)


# --- reading a package -----------------------------------------------------------------------------

AUTO = """
MODEL_MAPPING_NAMES = OrderedDict([("bert", "BertModel")])
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("llama", "LlamaForCausalLM"), ("xglm", "XGLMForCausalLM")])
MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES = OrderedDict([("dpt", "DPTForDepthEstimation")])
"""
LLAMA = """
class LlamaPreTrainedModel(PreTrainedModel):
    _supports_attention_backend = True
class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):
    pass
"""
XGLM = "class XGLMPreTrainedModel(PreTrainedModel):\n    pass\nclass XGLMForCausalLM(XGLMPreTrainedModel):\n    pass\n"
REGISTRY = """
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "SmolForCausalLM": ("transformers", "TransformersForCausalLM"),
}
_SPECULATIVE_DECODING_MODELS = {"EagleLlamaForCausalLM": ("llama_eagle", "EagleLlamaForCausalLM")}
_TRANSFORMERS_BACKEND_MODELS = {"TransformersForCausalLM": ("transformers", "TransformersForCausalLM")}
_LEFT_OUT = {"NoForCausalLM": ("no", "NoForCausalLM")}
_VLLM_MODELS = {**_TEXT_GENERATION_MODELS, **_SPECULATIVE_DECODING_MODELS, **_TRANSFORMERS_BACKEND_MODELS}
def _normalize_arch(architecture):
    return try_match_architecture_defaults(architecture)
raise RuntimeError("imported")
"""
SUFFIXES = """
_SUFFIX_TO_DEFAULTS: list[tuple[str, tuple[str, str]]] = [
    ("ForCausalLM", ("generate", "none")),
    ("ForSequenceClassification", ("pooling", "classify")),
]
"""


def transformers_read(tmp_path: Path) -> Path:
    for release, text in (
        ("5.1.0", XGLM),
        ("5.2.0", XGLM),
        ("5.3.0", XGLM.replace("pass\nclass", "_supports_attention_backend = True\nclass")),
    ):
        package = write(
            tmp_path / release,
            {
                "transformers/models/auto/modeling_auto.py": AUTO,
                "transformers/models/llama/modeling_llama.py": LLAMA,
                "transformers/models/xglm/modeling_xglm.py": text,
            },
        )
        read.add("transformers", release, package, tmp_path / "data")
    return tmp_path / "data"


def test_transformers_tables_and_flags_are_read(tmp_path):
    data = transformers_read(tmp_path)
    listed = ClassLists(data).of("transformers")
    assert [change.at for change in listed.changes] == [("5.1.0", "5.2.0"), ("5.3.0",)]
    assert listed.served("5.2.0").own == {"BertModel", "LlamaForCausalLM", "XGLMForCausalLM"}
    assert listed.served("5.2.0").backend == {"LlamaForCausalLM"}
    assert listed.changes[1].backend_add == ("XGLMForCausalLM",)


@pytest.mark.parametrize(
    ("requirement", "until", "newest"),
    [
        ("transformers<5.3,>=5.1", None, "5.2.0"),
        ("transformers>=5.1", None, "5.3.0"),
        ("transformers>=5.1", "5.2.9", "5.2.0"),
        ("transformers==5.2.0", None, "5.2.0"),
        ("transformers==5.2.5", None, "5.2.0"),
    ],
)
def test_a_registry_is_parsed_and_never_run(tmp_path, requirement, until, newest):
    data = transformers_read(tmp_path)
    package = write(
        tmp_path / "vllm",
        {
            "vllm/model_executor/models/registry.py": REGISTRY,
            "vllm/config/model.py": SUFFIXES,
            "vllm-1.0.0.dist-info/METADATA": f"Requires-Dist: {requirement}\nRequires-Dist: transformers-extra>=9\n",
        },
    )
    read.add("vllm", "1.0.0", package, data, until)
    served = ClassLists(data).of("vllm").served("1.0.0")
    assert served == Classes(
        "1.0.0",
        frozenset({"LlamaForCausalLM"}),
        frozenset({"SmolForCausalLM"}),
        newest,
        ("ForCausalLM",),
        ("ForSequenceClassification",),
    )
    assert served.implements("LlamaForSequenceClassification")
    assert not served.implements("MistralForSequenceClassification")


def test_entry_classes_are_read_of_every_module(tmp_path):
    data = transformers_read(tmp_path)
    package = write(
        tmp_path / "sglang",
        {
            "sglang/srt/models/llama.py": "\ufeffEntryClass = [LlamaForCausalLM, Phi3ForCausalLM]\n",
            "sglang/srt/models/deep/qwen.py": "if True:\n    EntryClass = QwenForCausalLM\n",
            "sglang/srt/models/transformers.py": "EntryClass = [TransformersForCausalLM]\n",
            "sglang-0.1.dist-info/METADATA": 'Requires-Dist: transformers==5.1.0; extra == "srt"\n',
        },
    )
    read.add("sglang", "0.1.0", package, data)
    served = ClassLists(data).of("sglang").served("0.1.0")
    assert served.own == {"LlamaForCausalLM", "Phi3ForCausalLM", "QwenForCausalLM"}
    assert served.transformers == "5.1.0"


def test_modules_of_mlx_are_classes_by_model_type(tmp_path):
    read.learn_types(None)
    package = write(
        tmp_path / "mlx",
        {
            "mlx_lm/models/llama.py": "class Model(nn.Module):\n    pass\n",
            "mlx_lm/models/solar_open.py": "from .glm4_moe import Model\n",
            "mlx_lm/models/base.py": "class BaseModelArgs:\n    pass\n",
            "mlx_lm/utils.py": 'MODEL_REMAPPING = {"mistral": "llama", "qwen3": "missing"}\n',
        },
    )
    read.add("mlx", "0.1.0", package, tmp_path / "data")
    own = ClassLists(tmp_path / "data").of("mlx").served("0.1.0").own
    assert {"LlamaForCausalLM", "MistralForCausalLM", "SolarOpenForCausalLM"} <= own
    assert "Qwen3ForCausalLM" not in own


def test_an_index_and_decorators_are_read_of_tensorrt_llm(tmp_path):
    package = write(
        tmp_path / "trt",
        {
            "tensorrt_llm/_torch/models/_arch_index.py": 'MODEL_ARCH_TO_MODULE = {"AForCausalLM": "modeling_a"}\n',
            "tensorrt_llm/_torch/models/modeling_b.py": '@register_auto_model("BForCausalLM")\nclass B:\n    pass\n',
        },
    )
    read.add("tensorrt_llm", "1.0", package, tmp_path / "data")
    assert ClassLists(tmp_path / "data").of("tensorrt_llm").served(None).own == {
        "AForCausalLM",
        "BForCausalLM",
    }


def test_a_release_is_read_anew_and_the_differences_are_made_again(tmp_path):
    data = transformers_read(tmp_path)
    first = (data / "engines/transformers/classes.yaml").read_text(encoding="utf-8")
    transformers_read(tmp_path)
    assert (data / "engines/transformers/classes.yaml").read_text(encoding="utf-8") == first
    package = write(tmp_path / "5.2.0", {"transformers/models/llama/modeling_llama.py": "x = 1\n"})
    read.add("transformers", "5.2.0", package, data)
    assert [change.at for change in ClassLists(data).of("transformers").changes] == [
        ("5.1.0",),
        ("5.2.0",),
        ("5.3.0",),
    ]


def test_a_folder_that_is_no_package_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match="allowed: the folder of an unpacked package"):
        read.main(["vllm", "1.0.0", str(tmp_path), "--data", str(tmp_path)])


def test_a_list_out_of_order_is_a_fault(catalog, tmp_path):
    text = (catalog.folder / "engines/mlx/classes.yaml").read_text(encoding="utf-8")
    write(tmp_path, {"engines/mlx/classes.yaml": text.replace('"0.32.0", "0.32.1"', '"0.32.1", "0.32.0"')})
    with pytest.raises(CatalogError, match="oldest first"):
        ClassLists(tmp_path).of("mlx")


def test_the_verdict_of_an_unlisted_class_is_that_no_engine_runs_it(catalog):
    model = catalog.model("Qwen/Qwen3-8B").model_copy(update={"architecture": "FooForCausalLM"})
    found = judge(launch(catalog, "sglang"), catalog.accelerator("h100"), model)
    assert found.code == Verdict.ENGINE_DOES_NOT_RUN
    assert found.reason == "SGLang 0.5.23 does not have the class FooForCausalLM"


NO_LONGER_SERVED = (
    "Qwen/Qwen-7B",
    "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "mosaicml/mpt-7b",
    "xai-org/grok-1",
    "tencent/Tencent-Hunyuan-Large",
)
"""Models that no release of vLLM serves, or none of today: their records said so by hand once."""


def test_no_record_says_by_hand_what_the_lists_say(catalog) -> None:
    assert not [model.id for model in catalog.models.values() if model.unsupported_by]


@pytest.mark.parametrize("name", NO_LONGER_SERVED)
def test_a_page_says_from_the_list_that_a_class_is_not_served(catalog, lists, name: str) -> None:
    model = catalog.models[name]
    answer = kvreport.estimate(name, gpu="h200", engine="vllm")
    assert answer.verdict == "engine_does_not_run"
    site = gather(catalog, models=name, gpus="h200-sxm-141gb", version="test")
    assert site.refusal(model) == answer.verdict_reason
    assert not site.runs(model)
    why = answer.verdict_reason.rstrip(".").removeprefix(
        f"{site.engine.label} "
    )  # the line names the engine before
    assert why in plain(headline(site, model, site.headline[name]))
    spans = lists.of("vllm").spans(model.architecture)
    for first, last in spans:
        for release in (first, last):
            if release is None:
                continue
            older = kvreport.estimate(name, gpu="h200", engine=f"vllm@{release}")
            assert older.verdict != "engine_does_not_run"
    assert spans or "releases from" not in answer.verdict_reason


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("openai/gpt-oss-120b", "1.0"),  # an observation of 1.1.0rc3
        ("moonshotai/Kimi-K2.5", "1.3"),  # one of 1.3.0rc7; no table of 1.2 has it
        ("zai-org/GLM-5", "1.3"),
        ("moonshotai/Kimi-K3", "1.3"),  # in the registry alone
    ],
)
def test_tensorrt_llm_serves_a_class_from_the_release_that_has_it(
    catalog, lists, name: str, first: str
) -> None:
    listed = lists.of("tensorrt_llm")
    assert listed.spans(catalog.models[name].architecture) == [(first, None)]
    for release in ("1.0.0", "1.2.1", "1.3.0"):
        answer = kvreport.estimate(
            name, gpu="b300-sxm-288gb", tensor_parallel=8, engine=f"tensorrt-llm@{release}"
        )
        assert (answer.verdict == "engine_does_not_run") == (release < first)
    assert any(source.evidence == "verbatim" and source.revision for source in listed.sources)


@pytest.mark.parametrize("release", ["0.5.19", "0.5.20"])
def test_a_backend_that_gives_every_layer_the_same_heads_runs_no_others(release: str) -> None:
    """SGLang's Transformers backend was counted with the cells of the full layers for all: fewer bytes than a request has."""
    asked = {"gpu": "h100-sxm-80gb", "context_tokens": 8192}
    found = kvreport.estimate("google/diffusiongemma-26B-A4B-it", engine=f"sglang@{release}", **asked)
    assert found.verdict == "engine_does_not_run"
    assert "with the same heads in all of them" in found.verdict_reason
    later = kvreport.estimate("google/diffusiongemma-26B-A4B-it", engine="sglang@0.5.23", **asked)
    assert later.verdict in ("fits", "tight")
