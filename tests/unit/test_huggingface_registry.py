"""The table of classes and the modules that read them say the same."""

from __future__ import annotations

import json
import re
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from kvreport.architectures import families, layered, listing, read_config, registry
from kvreport.architectures.published import published_defaults
from kvreport.errors import InputError


def modules() -> list[str]:
    folder = Path(families.__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def test_every_module_registers_what_the_table_says() -> None:
    for module in modules():
        import_module(f"{families.__name__}.{module}")
    registered = {
        name: entry.read.__module__.rpartition(".")[2]
        for name, entry in registry._BY_CLASS.items()
        if not isinstance(entry.read, partial)  # a listing's
    }
    listed = layered.index()
    assert families.index().classes == {**registered, **dict.fromkeys(listed.first, families.LAYERED)}
    assert not registered.keys() & listed.first.keys()
    coded = {model_type: entry.name for model_type, entry in registry._BY_MODEL_TYPE.items()}
    assert families.index().model_types == {**coded, **listed.model_types}
    assert not coded.keys() & listed.model_types.keys()


def test_every_module_reads_some_class() -> None:
    assert set(modules()) - {"mimo_encoders"} == set(families.index().classes.values()) - {families.LAYERED}


def test_an_unknown_class_is_named_and_never_replaced() -> None:
    with pytest.raises(InputError) as caught:
        read_config({"architectures": ["GreenLlamaForCausalLM"], "model_type": "llama"}, id="a/b")
    text = str(caught.value)
    assert "GreenLlamaForCausalLM" in text
    assert "architectures" in text
    assert "model_type" in text


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Phi4MMForCausalLM", "Phi4MultimodalForCausalLM"),
        ("MiniCPMO", "MiniCPMV"),
    ],
)
def test_a_class_whose_config_does_not_tell_its_bytes_is_answered_with_another(
    name: str, instead: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_config({"architectures": [name]}, id="a/b")
    text = str(caught.value)
    assert text.startswith(f"config: architectures: found '{name}'; allowed: {instead}")
    # What is named instead can be read, and the class itself cannot.
    assert name not in families.index().classes
    assert any(known.startswith(instead) for known in families.index().classes)


def test_every_kept_default_belongs_to_a_class_a_listing_or_a_section_that_is_read() -> None:
    folder = Path(families.__file__).parents[1]
    source = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    sections = set(re.findall(r'published\("(\w+)"\)', source))
    listed = {one.config or next(iter(one.model_types), "") for one in map(listing.listing, listing.index())}
    known = set(published_defaults())
    assert sections <= known
    named = set(re.findall(r'"(\w+)"', source))
    texts = map(layered.listing, layered.index().texts)
    beside = {name for text in texts for line in text.encoders for name in (line.defaults, line.absent)}
    outer = {layered.listing(name).sizes.get("outer") for name in layered.index().texts}
    assert beside <= known
    assert known <= named | listed | beside | outer | set(families.index().classes)


def test_a_default_is_generated_or_kept_and_not_both() -> None:
    folder = Path(families.__file__).parents[1]
    generated, kept = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in ("defaults.json", "kept_defaults.json")
    )
    assert not {(name, key) for name in kept for key in kept[name] if key in generated.get(name, {})}
