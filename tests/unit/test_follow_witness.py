"""``make follow``: what two releases of an engine resolve, build and plan otherwise, on small stand-ins."""

from __future__ import annotations

import dataclasses
import enum
import gc
import sys
import types
from pathlib import Path

import pytest

from kvreport.catalog.load import load_catalog
from kvreport.witness import asking, facts, stand_in

H100, MI300X = ("h100-sxm-80gb", "a/b"), ("mi300x", "a/b")


@pytest.fixture
def follow_witness(repository: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(repository / "scripts"))
    import follow_witness

    yield follow_witness
    for name in ("follow_witness", "follow_planner", "follow_sources"):
        sys.modules.pop(name)


class Mode(enum.Enum):
    NONE = 0
    FULL = 3


@dataclasses.dataclass
class Cache:
    share: float = 0.9
    mode: Mode = Mode.FULL
    sizes: tuple[int, ...] = (2, 1)
    folder: str = "/scratch/1"
    within: object = None
    _raw: object = None
    further: object = dataclasses.field(default_factory=object)

    @property
    def chunked(self) -> bool:
        return self.share > 0.5

    @property
    def device(self) -> str:
        raise RuntimeError("no GPU")


Cache.__module__ = "vllm.config.cache"


def test_settings_of_an_engine_are_told_by_name_with_what_its_properties_answer() -> None:
    inner = Cache(mode=Mode.NONE, _raw=Cache())
    outer = Cache(within=inner)
    inner.within = outer  # a circle ends
    told = facts.settings(outer, "config", "/scratch")
    assert told["config.share"] == "0.9"
    assert told["config.mode"] == "'FULL'"
    assert told["config.sizes"] == "[2, 1]"
    assert told["config.chunked"] == "True"
    assert told["config.within.mode"] == "'NONE'"
    # Neither a folder of this run, nor objects of others, nor what is private, nor what only a GPU answers.
    assert not [name for name in told if "folder" in name or "further" in name or "_raw" in name]
    assert "config.device" not in told


class Tensor:
    """What is asked of a tensor, without torch."""

    def __init__(self, *shape: int, of: Tensor | None = None, stored: int = 0) -> None:
        self.shape, self.dtype = shape, "torch.bfloat16"
        self.storage = (
            of.storage if of is not None else types.SimpleNamespace(_cdata=id(self), nbytes=lambda: stored)
        )

    def untyped_storage(self):
        return self.storage


def model(**parts: object):
    """Two layers with the same parts, and one that has none."""
    layers = {f"layers.{number}": types.SimpleNamespace(_parameters=parts, _buffers={}) for number in (0, 1)}
    named = {"": types.SimpleNamespace(_parameters={}, _buffers={"none": None}), **layers}
    return types.SimpleNamespace(named_modules=named.items)


def test_tensors_are_told_by_what_they_store_and_others_by_the_function_that_made_them() -> None:
    import weakref

    weights = [Tensor(4, 8, stored=64), Tensor(4, 8, stored=80)]
    layers = [types.SimpleNamespace(_parameters={"weight": one}, _buffers={}) for one in weights]
    two = types.SimpleNamespace(named_modules={"layers.0": layers[0], "layers.1": layers[1]}.items)
    kept, view, freed = Tensor(16, stored=32), Tensor(4, of=weights[0]), Tensor(99, stored=99)
    made = {number: (weakref.ref(one), "v1/group.py::make") for number, one in enumerate((kept, view, freed))}
    del freed
    gc.collect()
    assert facts.tensors(two, made) == {
        "layers.*.weight": "1 x bfloat16 [4, 8] 64 bytes; 1 x bfloat16 [4, 8] 80 bytes",
        "v1/group.py::make": "1 x bfloat16 [16] 32 bytes",
    }
    alike = model(weight=weights[0])
    assert facts.tensors(alike, {}) == {"layers.*.weight": "1 x bfloat16 [4, 8] 64 bytes"}
    assert facts.modules(alike) == {"": "SimpleNamespace", "layers.*": "SimpleNamespace"}


def test_fields_of_a_cache_are_told_once_for_the_layers_that_have_them_alike() -> None:
    told = facts.caches({"layers.0.attn": Cache(), "layers.1.attn": Cache(share=0.5)})
    assert told["layers.*.attn: Cache.share"] == "0.5, 0.9"
    assert told["layers.*.attn: Cache.mode"] == "'FULL'"


def test_nothing_is_an_instance_of_what_is_not_there() -> None:
    assert not isinstance(3, stand_in.Nothing())  # type: ignore[arg-type]


def answer(blocks: int = 7, **told: str):
    return {"facts": told, "at": [{"pool": 1, "length": 2, "blocks": blocks}]}


def test_two_releases_differ_in_what_their_starts_answer(follow_witness) -> None:
    old = {
        "config.scheduler.max_num_seqs": "256", "config.seed": "1", "config.registry.class_name": "'A'",
        "config.gone": "1", "tensor layers.*.w": "2 x int8 [4] 4 bytes", "module a": "Linear",
        "cache layers.*: Spec.blocks": "1",
    }  # fmt: skip
    new = {
        "config.scheduler.max_num_seqs": "1024", "config.parallel.max_num_seqs": "1024", "config.seed": "2",
        "config.model.hf_text_config.hidden_size": "8",
        "config.registry.class_name": "'B'", "config.added": "0", "tensor layers.*.weight": "2 x int8 [4] 4 bytes",
        "tensor v1/group.py::make": "1 x int32 [8] 32 bytes", "module a": "Linear",
        "cache layers.*: Spec.blocks": "2",
    }  # fmt: skip
    before = {H100: answer(**old), MI300X: {"error": "ValueError: no such class"}}
    found = follow_witness.differences(before, {H100: answer(8, **new), MI300X: answer(**old)})
    assert found == {
        ("plan", "blocks", "7", "8"): [H100],
        ("plan", "refused", "ValueError: no such class", None): [MI300X],
        ("cache", "Spec.blocks", "1", "2"): [H100],
        ("tensor", "v1/group.py::make", None, "1 x int32 [8] 32 bytes"): [H100],
        ("setting", "max_num_seqs", "256", "1024"): [H100],
        ("setting", "max_num_seqs", None, "1024"): [H100],
        ("setting", "added", None, "0"): [H100],
        ("setting", "gone", "1", None): [H100],
    }
    said = follow_witness.report(found)
    assert "- `max_num_seqs`: 256, now 1024 (h100-sxm-80gb: a/b); new, 1024 (h100-sxm-80gb: a/b)" in said
    assert "- `refused`: gone, was ValueError: no such class (mi300x: a/b)" in said
    assert "- New, with one value in all cases: `added` (0)" in said
    assert "- Gone, with one value in all cases: `gone` (1)" in said
    assert "### Parts of models: 0" in said
    assert follow_witness.differences(before, before) == {}


def test_a_default_of_one_kind_of_device_is_listed_with_its_devices(follow_witness) -> None:
    cases = [("h100-sxm-80gb", "a/b"), ("b200-sxm-180gb", "a/b"), ("b200-sxm-180gb", "a/c")]
    before = {case: answer(**{"config.max_tokens": "8192"}) for case in cases}
    after = before | {case: answer(**{"config.max_tokens": "16384"}) for case in cases[1:]}
    said = follow_witness.report(follow_witness.differences(before, after))
    assert "- `max_tokens`: 8192, now 16384 (b200-sxm-180gb: a/b and 1 more)" in said


def test_a_release_that_was_asked_is_not_asked_again(follow_witness, tmp_path: Path, monkeypatch) -> None:
    asked = []

    def ask(_, engine, device, cases, *, path, **__):
        asked.append((engine, device.id, path.name, len(cases)))
        assert all(case["facts"] and case["words"] == ("--tp-size", "4") for case in cases)
        return [answer() for _ in cases]

    monkeypatch.setattr(asking, "ask", ask)
    monkeypatch.setattr(follow_witness, "of_each_kind", lambda _: [("a/b", {}), ("a/c", {})])
    both = [(name, types.SimpleNamespace(folder=tmp_path / name)) for name in ("0.1", "0.2", "0.3")]
    told = follow_witness.answers("sglang", both[:2], "python", tmp_path, tmp_path)
    assert [side.keys() for side in told] == [
        {(gpu, name) for gpu in follow_witness.DEVICES["sglang"] for name in ("a/b", "a/c")}
    ] * 2
    assert len(asked) == 6
    follow_witness.answers("sglang", both[1:], "python", tmp_path, tmp_path)
    assert {name for _, _, name, _ in asked[6:]} == {"0.3"}


def test_one_model_of_each_kind_of_cache_is_asked(follow_witness) -> None:
    from follow_planner import CONFIGS

    names = [name for name, _ in follow_witness.of_each_kind(CONFIGS)]
    assert len(names) >= 15
    assert "openai/gpt-oss-20b" in names  # fewer layers than gpt-oss-120b
    assert "openai/gpt-oss-120b" not in names


def test_amd_devices_are_pretended_to_vllm_alone(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps({{'error': str(json.load(sys.stdin)['device'])}}))\n"
    )
    python.chmod(0o755)
    device = load_catalog().accelerator("mi300x")
    (said,) = asking.ask(str(python), "vllm", device, [{}])
    assert "'capability': [9, 4], 'gcn_arch': 'gfx942'" in said["error"]
    (said,) = asking.ask(str(python), "sglang", device, [{}])
    assert "no CUDA capability" in said["error"]
