"""What configs are read as, row by row of tests/readings.yaml."""

from __future__ import annotations

import ast
import operator
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from reading import kinds, parts, total

from kvreport.accounting.kv_cache import state_tensor_bytes
from kvreport.architectures import read_config
from kvreport.catalog.base import Record
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.model import Model
from kvreport.errors import InputError

TABLE: Any = yaml.load((Path(__file__).parents[1] / "readings.yaml").read_bytes(), yaml.CSafeLoader)
ROWS = [
    pytest.param(row, id=f"{group['shows']}-{index}")
    for group in TABLE
    for index, row in enumerate(group["rows"])
]
OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


def worked_out(stated: Any) -> Any:
    """Return what a row states, with the arithmetic of a text that begins with = done."""
    if isinstance(stated, str) and stated.startswith("= "):
        return _value(ast.parse(stated[2:], mode="eval").body)
    if isinstance(stated, dict):
        return {key: worked_out(one) for key, one in stated.items()}
    return [worked_out(one) for one in stated] if isinstance(stated, list) else stated


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one) for one in node.elts]
    return ast.literal_eval(node)


def written(value: Any) -> Any:
    """Return a value as a row writes it: a record as its kind and the fields that are not their defaults."""
    if isinstance(value, Record):
        fields = {name: getattr(value, name) for name in value.model_dump(exclude_defaults=True)}
        return written({"kind": value.kind, **fields} if hasattr(value, "kind") else fields)
    if isinstance(value, dict):
        return {key: written(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    return [written(one) for one in value] if isinstance(value, list | tuple) else value


def answers(model: Model) -> dict[str, Any]:
    """Return what rows ask of a model by a word of their own."""
    every = kinds(model)
    caches = [(cache, group.count) for group in model.layers for cache in group.caches]
    of_kind = {cache.kind: [one for one, _ in caches if one.kind == cache.kind] for cache, _ in caches}
    state = next((cache for cache, _ in caches if isinstance(cache, RecurrentState)), None)
    return {
        "total": total(model),
        "parameters": sum(row.parameters for row in model.weights),
        "parts": parts(model),
        "only": parts(model),
        "kinds": every,
        "at": {kind: [index for index, one in enumerate(every) if one == kind] for kind in every},
        "counts": {kind: sum(count for one, count in caches if one.kind == kind) for kind in of_kind},
        "the": {kind: found[0] for kind, found in of_kind.items() if len(found) == 1},
        "state": state,
        "state_bytes": [state_tensor_bytes(tensor) for tensor in state.tensors] if state else [],
    }


def asked(model: Model, path: str) -> Any:
    """Return what stands at a path of names, indexes and slices, from a word of the table or from the model."""
    first, *steps = path.split(".")
    words = answers(model)
    value = words[first] if first in words else getattr(model, first)
    for step in steps:
        if step in ("len", "set"):
            value = len(value) if step == "len" else set(value)
        elif re.fullmatch(r"-?\d+", step):
            value = value[int(step)]
        elif ":" in step:
            value = value[slice(*(int(one) if one else None for one in step.split(":")))]
        else:
            value = value[step] if isinstance(value, dict) else getattr(value, step)
    return written(value)


@pytest.mark.parametrize("row", ROWS)
def test_a_config_is_read_as_its_row_says(row: dict[str, Any]) -> None:
    stated = dict(row)
    keys, whole = stated.pop("keys"), stated.pop("whole", False)
    config = {"architectures": [stated.pop("class")], **keys} if "class" in stated else keys
    assert stated
    if "refused" in stated:
        with pytest.raises(InputError, match=stated["refused"]):
            read_config(config, id="test/model", assume_defaults=not whole)
        return
    model = read_config(config, id="test/model", assume_defaults=not whole)
    for path, text in stated.items():
        expected = worked_out(text)
        if path == "note":
            assert expected in " ".join(model.notes)
        elif path == "billions":
            assert f"{total(model) / 1e9:.{len(expected.partition('.')[2])}f}" == expected
        elif path in ("parts", "at"):
            found = asked(model, path)
            assert {name: found.get(name, 0) for name in expected} == expected
        else:
            assert asked(model, path) == expected, path
