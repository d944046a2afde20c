"""Files of rules by release: what they may say, and what a release reads off them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvreport.catalog.load import Catalog
from kvreport.catalog.release import Rule, read_rules, release_at, trait, value_at
from kvreport.catalog.server_flags import flag_names
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError
from kvreport.resources import data_dir


def rule(values: dict[str, Any], at: dict[str, Any] | None = None) -> dict[str, Any]:
    """A rule of a file."""
    stated: dict[str, Any] = {"rule": "packing", "what": "How.", "values": values, "read": "a.py::f"}
    return stated if at is None else stated | {"at": at}


def written(folder: Path, *rules: dict[str, Any]) -> Path:
    """A catalog with a file of rules."""
    path = folder / "engines" / "vllm" / "rules.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        yaml.safe_dump({"schema_version": 1, "family": "vllm", "rules": list(rules)}), encoding="utf-8"
    )
    return folder


def test_a_value_holds_until_the_next_one() -> None:
    values = {(): 1, (0, 20): 2, (0, 20, 1): 3}
    asked = [(0, 6), (0, 19, 1), (0, 20), (0, 20, 0), (0, 20, 1), (0, 33), ()]
    assert [value_at(values, one) for one in asked] == [1, 1, 2, 2, 3, 3, 3]


def test_a_list_is_what_releases_added_and_removed() -> None:
    stated = rule({"0": ["a"], "0.2": {"add": ["b", "c"]}, "0.3": {"remove": ["a", "b"]}, "0.4": []})
    found = Rule.model_validate_json(json.dumps(stated)).by_release()
    assert [sorted(one) for one in found.values() if isinstance(one, frozenset)] == [
        ["a"],
        ["a", "b", "c"],
        ["c"],
        [],
    ]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (rule({"0.2": True, "0.3": False}), "oldest first"),
        (rule({"0": True, "0.3": False, "0.20": True, "0.4": False}), "oldest first"),
        (rule({"0": True, "0.3": "tuples"}), "values of one kind"),
        (rule({"0": True, "0.3": True}), "no value twice in a row"),
        (
            rule({"0": True, "0.3": False}, {"first": "0.3", "last": "0.2.9"}),
            "an earlier and a later release",
        ),
        (rule({"0": True, "0.3": False}, {}), "at.last: found nothing"),
        (rule({"0": True, "0.3": False}, {"last": "0.3", "digest": ["0a"]}), "at.digest.0"),
        (rule({"0": True}), "at least 2"),
    ],
)
def test_a_rule_that_says_what_it_must_not_is_refused(
    tmp_path: Path, stated: dict[str, Any], said: str
) -> None:
    with pytest.raises(CatalogError) as refused:
        read_rules(written(tmp_path, stated), "vllm")
    assert said in str(refused.value)
    assert any("engines/vllm/rules.yaml" in str(fault) for fault in Catalog(tmp_path).faults())


def test_a_list_says_what_it_means_and_where_it_was_read(tmp_path: Path) -> None:
    stated = {
        "list": "alone",
        "values": {"0": ["A"]},
        "what": "What.",
        "read": "a.py::f",
        "at": {"first": "0.3", "last": "0.2"},
    }
    for missing, said in (("what", "lists.0.what"), ("read", "lists.0.read"), ("", "at of alone")):
        kept = {name: value for name, value in stated.items() if name != missing}
        path = written(tmp_path, rule({"0": True, "0.3": False})) / "engines" / "vllm" / "rules.yaml"
        path.write_text(
            yaml.safe_dump(yaml.safe_load(path.read_text()) | {"lists": [kept]}), encoding="utf-8"
        )
        faults = [str(fault) for fault in Catalog(tmp_path).faults()]
        assert any(said in one for one in faults), faults


def test_a_trait_is_read_in_one_release_or_in_a_first_and_a_last(tmp_path: Path) -> None:
    stated = {"trait": "counts_cells", "what": "What.", "value": True, "read": "a.py::f"}
    path = written(tmp_path, rule({"0": True, "0.3": False})) / "engines" / "vllm" / "rules.yaml"
    for at, where in (
        ({"last": "0.3"}, "a.py::f (0.3)"),
        ({"first": "0.3", "last": "0.4"}, "a.py::f (0.3 to 0.4)"),
        ({"first": "0.4", "last": "0.3"}, ""),
    ):
        stated["at"] = at
        path.write_text(
            yaml.safe_dump(yaml.safe_load(path.read_text()) | {"traits": [stated]}), encoding="utf-8"
        )
        if where:
            found = read_rules(tmp_path, "vllm")
            assert found is not None
            assert [one.where for one in found.traits] == [where]
        else:
            with pytest.raises(CatalogError, match="an earlier and a later release"):
                read_rules(tmp_path, "vllm")


def test_a_trait_without_a_value_is_true_and_the_rules_of_two_engines_stay_short() -> None:
    found = {family: read_rules(data_dir(), family) for family in ("vllm", "sglang")}
    assert {one.trait for rules in found.values() if rules for one in rules.traits if one.value is True} >= {
        "held_apart",
        "share_before_loading",
    }
    files = [data_dir() / "engines" / family / "rules.yaml" for family in found]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < 1_100


def test_a_rule_stands_once(tmp_path: Path) -> None:
    stated = rule({"0": True, "0.3": False})
    with pytest.raises(CatalogError, match="packing twice"):
        read_rules(written(tmp_path, stated, dict(stated, values=dict(stated["values"]))), "vllm")


def test_a_release_has_a_value_of_every_rule() -> None:
    found = read_rules(data_dir(), "vllm")
    assert found is not None
    for numbers in ((0, 6, 4), (0, 20, 1), (0, 33), (0, 34), ()):
        assert set(release_at("vllm", numbers).values) == {rule.rule for rule in found.rules}
    assert release_at("vllm", ()).values == release_at("vllm", (0, 33)).values
    assert release_at("ceiling", (1,)).values == {}


# --- records out of rules ----------------------------------------------------------------------------------------


def catalog_of(folder: Path, **changes: Any) -> Catalog:
    """A catalog whose only engine is vLLM by rules of its own."""
    stated = read_yaml(data_dir() / "engines/vllm/rules.yaml", "rules")
    assert isinstance(stated, dict)
    path = folder / "engines" / "vllm" / "rules.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(stated | changes, sort_keys=False), encoding="utf-8")
    return Catalog(folder)


def test_a_range_of_releases_is_a_record_that_ends_where_the_next_begins(tmp_path: Path) -> None:
    records = [
        {"name": "vllm-old", "label": "vLLM 0.19", "first": "0.19", "version": "0.19.1"},
        {"name": "vllm", "label": "vLLM 0.20", "first": "0.20", "version": "0.20.2"},
    ]
    found = catalog_of(tmp_path, records=records)
    old, new = (found.engine(name) for name in ("vLLM old", "vllm"))
    assert [one.versions for one in (old, new)] == [("0.19", "0.20"), ("0.20", None)]
    assert [one.utilization for one in (old, new)] == [0.9, 0.92]
    assert old.coefficients == new.coefficients
    assert list(found.engines) == ["vllm-old", "vllm"]
    assert found.engine("vllm@0.19").version == "0.19.1"


def test_a_file_of_its_own_replaces_a_record_that_rules_make(tmp_path: Path) -> None:
    found = catalog_of(tmp_path)
    stated = found.engine("vllm").model_dump(mode="json", exclude_defaults=True) | {"label": "Ours"}
    (tmp_path / "engines" / "vllm.yaml").write_text(yaml.safe_dump(stated), encoding="utf-8")
    assert Catalog(tmp_path).engine("vllm").label == "Ours"
    assert Catalog(tmp_path).engine("vllm-0.32").label == "vLLM 0.29 to 0.32"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"records": [{"name": "other", "label": "a", "first": "0.9", "version": "0.9.1"}]},
            "begin with vllm",
        ),
        (
            {
                "records": [
                    {"name": "vllm-b", "label": "b", "first": "0.20", "version": "0.20.1"},
                    {"name": "vllm", "label": "a", "first": "0.9", "version": "0.9.1"},
                ]
            },
            "oldest first",
        ),
        ({"engine": {"block_tokens": 0}}, "block_tokens"),
        ({"fields": []}, "device_classes"),
        ({"family": "sglang", "records": []}, "the folder's name, vllm"),
    ],
)
def test_records_that_rules_cannot_make_are_faults(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    faults = [str(fault) for fault in catalog_of(tmp_path, **changes).faults()]
    assert any("engines/vllm/rules.yaml" in one and said in one for one in faults), faults


def test_a_flag_that_a_trait_names_is_spelled_with_the_flags_of_its_server() -> None:
    for path in sorted((data_dir() / "engines").glob("*/rules.yaml")):
        for stated in yaml.safe_load(path.read_text(encoding="utf-8")).get("traits", ()):
            assert not str(stated.get("value")).startswith("--") or "{" in stated["value"], stated
    assert trait("sglang", "pool_cap") == flag_names("sglang")["max_total_tokens"]
    assert trait("llama_cpp", "requests_flag") == flag_names("llama_cpp")["parallel"]
