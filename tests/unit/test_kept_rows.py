"""Kept rows are never wrong: every kind of change is seen, damage is noticed."""

from __future__ import annotations

from dataclasses import replace

import faults
import pytest

from kvreport.dataset import kept, write
from kvreport.dataset.grid import Fleet, axes
from kvreport.dataset.kept import Kept


@pytest.fixture(scope="module")
def chosen(catalog):
    return axes(
        catalog,
        models="Qwen/Qwen2.5-7B,openai/gpt-oss-20b",
        gpus="h100-sxm-80gb,rtx-4090",
        contexts=[8192, 32768],
    )


@pytest.fixture
def computed(monkeypatch):
    """Names of the models that were computed, in order."""
    names = []
    original = write.model_files

    def counting(part):
        names.extend(model.id for model in part.models)
        return original(part)

    monkeypatch.setattr(write, "model_files", counting)
    return names


@pytest.fixture
def publish(catalog, tmp_path):
    """Publish into a fresh folder, with one cache for all; return the checksums."""
    count = 0

    def publisher(part):
        nonlocal count
        count += 1
        out = tmp_path / f"out{count}"
        write.publish(catalog, part, out, version="2026.11.21", workers=1, cache=tmp_path / "cache")
        return (out / "SHA256SUMS").read_bytes()

    return publisher


def test_unchanged_rows_are_computed_once_and_come_out_alike(chosen, publish, computed):
    first = publish(chosen)
    assert computed == ["Qwen/Qwen2.5-7B", "openai/gpt-oss-20b"]
    assert publish(chosen) == first
    assert len(computed) == 2


def test_a_changed_model_alone_is_computed_anew(chosen, publish, computed):
    publish(chosen)
    computed.clear()
    qwen, oss = chosen.models
    longer = qwen.model_copy(update={"context_tokens": qwen.context_tokens * 2})
    publish(replace(chosen, models=(longer, oss)))
    assert computed == ["Qwen/Qwen2.5-7B"]


@pytest.mark.parametrize(
    "change", ["accelerator", "context", "parallel", "weights", "kv", "engine", "format"]
)
def test_a_change_of_anything_shared_is_seen(chosen, change, tmp_path):
    device, *others = chosen.accelerators
    changed = {
        "accelerator": {
            "fleet": Fleet((device.model_copy(update={"compute_capability": "8.6"}), *others), chosen.engine)
        },
        "context": {"contexts": (8192, 32769)},
        "parallel": {"tensor_parallel": (1, 2)},
        "weights": {"weight_formats": chosen.weight_formats[:1]},
        "kv": {"kv_formats": chosen.kv_formats[:1]},
        "engine": {
            "fleet": Fleet(chosen.accelerators, chosen.engine.model_copy(update={"utilization": 0.5}))
        },
        "format": {
            "formats": {
                name: form.model_copy(update={"bits": form.bits + 1}) for name, form in chosen.formats.items()
            }
        },
    }[change]
    model = chosen.models[0]
    before, after = Kept(tmp_path, chosen), Kept(tmp_path, replace(chosen, **changed))
    before.put(model, kept.ModelFiles(model.slug, 1, b"p", b"c"))
    assert before.get(model) is not None
    assert after.get(model) is None


def test_a_change_of_the_code_is_seen(chosen, tmp_path, monkeypatch):
    import shutil

    from kvreport import resources

    copy = tmp_path / "package"
    shutil.copytree(resources.package_dir(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    model = chosen.models[0]
    monkeypatch.setattr(resources, "package_dir", lambda: copy)
    Kept(tmp_path / "c", chosen).put(model, kept.ModelFiles(model.slug, 1, b"p", b"c"))
    assert Kept(tmp_path / "c", chosen).get(model) is not None
    with (copy / "accounting/weights.py").open("a") as file:
        file.write("# a comment\n")
    assert Kept(tmp_path / "c", chosen).get(model) is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:20], lambda _: b"", lambda b: b[:-9] + b"x" * 9]
)
def test_damaged_rows_are_not_believed_and_are_mended(chosen, publish, computed, tmp_path, damage):
    first = publish(chosen)
    computed.clear()
    for path in (tmp_path / "cache").glob("*.rows"):
        path.write_bytes(damage(path.read_bytes()))
    assert publish(chosen) == first
    assert len(computed) == 2
    assert publish(chosen) == first
    assert len(computed) == 2


def test_what_is_not_used_is_forgotten(chosen, publish, tmp_path):
    for contexts in ((1024,), (2048,), (4096,), (8192,)):
        publish(replace(chosen, contexts=contexts))
    assert len(list((tmp_path / "cache").glob("*.rows"))) <= 3


def test_rows_are_kept_whole_or_not_at_all(chosen, tmp_path):
    """Whatever change of the file system fails, what is kept is believed only if it is whole."""
    part = replace(chosen, models=chosen.models[:1])
    (files,) = write._all_models(part, 1, None)
    failed = 0
    for at in range(1, 6):
        kept = Kept(tmp_path / str(at), part)
        with faults.injected(at) as injected:
            kept.put(part.models[0], files)
        failed += bool(injected.struck)
        assert kept.get(part.models[0]) in (None, files)
        assert not list(tmp_path.rglob("*.part"))
        kept.put(part.models[0], files)
        assert kept.get(part.models[0]) == files
    assert failed >= 3
