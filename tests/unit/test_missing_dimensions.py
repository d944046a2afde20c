"""No silent answer for a config that lacks, misspells or spoils a dimension: every class."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import TIMES, counted, thinned
from huggingface_configs import STARTS

from kvreport.accounting.weights import parameters
from kvreport.architectures.assumptions import CORE
from kvreport.architectures.keys import Keys
from kvreport.architectures.reader import ConfigReading, read_config_report
from kvreport.architectures.registry import known_classes
from kvreport.errors import InputError

_ASSUMED = re.compile(r"^(\S+) = (\d+): not in the config; the default of ")


def read(config: dict[str, Any], *, assume_defaults: bool = False) -> ConfigReading:
    return read_config_report(copy.deepcopy(config), id="local/x", assume_defaults=assume_defaults)


def answer(reading: ConfigReading) -> tuple[object, ...]:
    layers = tuple((group.layers, group.caches) for group in reading.model.layers)
    return parameters(reading.model), layers


def put(config: dict[str, Any], path: str, value: int) -> None:
    *sections, key = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[key] = value


def stated(name: str) -> dict[str, Any] | None:
    """Return a config that states every size of a class; None where defaults alone do not make one."""
    for start in (STARTS[name],) if name in STARTS else ({}, {"text_config": {}}):
        config: dict[str, Any] = {"architectures": [name], **copy.deepcopy(start)}
        try:
            for _ in range(4):
                found = [_ASSUMED.match(line) for line in read(config, assume_defaults=True).assumptions]
                for match in filter(None, found):
                    put(config, match[1], int(match[2]))
            read(config)
        except InputError:
            continue
        return config
    return None


def sizes(config: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the dotted paths of the core dimensions that a config states."""
    for key, value in config.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from sizes(value, where)
        elif key in CORE and isinstance(value, int):
            yield where


def without(config: dict[str, Any], path: str, **instead: object) -> dict[str, Any]:
    """Return the config without one key, and with others in its place."""
    copied = copy.deepcopy(config)
    place = copied
    *sections, key = path.split(".")
    for section in sections:
        place = place[section]
    place.pop(key)
    place.update(instead)
    return copied


def misspelt(key: str) -> tuple[str, ...]:
    middle = len(key) // 2
    words = key.split("_")
    found = (
        key[:-2] + key[-1],
        key[:middle] + key[middle + 1 :],
        key.replace("_", ""),
        words[0] + "".join(word.title() for word in words[1:]),
        key.replace("_", "-"),
        key.upper(),
    )
    return tuple(word for word in dict.fromkeys(found) if word != key)


def decides(config: dict[str, Any], path: str, value: int, before: tuple[object, ...]) -> bool:
    """Tell whether a key decides any byte: with twice its value, the answer is another or a refusal."""
    try:
        return answer(read(without(config, path, **{path.rpartition(".")[2]: 2 * value}))) != before
    except InputError:
        return True


def spoilt(value: int) -> tuple[object, ...]:
    """Return what is no count of anything, in place of one."""
    return (str(value), value + 0.5, True, -3, [value], {"value": value}, 10**18)


def judged(config: dict[str, Any], key: str) -> str:
    """Read a config: ``refused``, ``said`` where an assumption or an unread key is named, else ``silent``."""
    counted("configs with a core dimension missing, null, misspelt or spoilt")
    try:
        reading = read(config)
    except InputError:
        return "refused"
    said = any(key in line for line in (*reading.assumptions, *reading.not_read))
    return "said" if said else "silent"


def value_at(config: dict[str, Any], path: str) -> object:
    place: Any = config
    for part in path.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place


def with_value(config: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    copied = copy.deepcopy(config)
    *sections, key = path.split(".")
    place = copied
    for section in sections:
        if not isinstance(place.get(section), dict):
            place[section] = {}
        place = place[section]
    place[key] = value
    return copied


def optional_keys(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Return the keys that a class looks for beside its core dimensions, each with its other names."""
    found: dict[str, set[str]] = {}
    look = Keys._look

    def noted(self: Keys, names: tuple[str, ...]) -> None:
        look(self, names)
        for name in names:
            found.setdefault(self.field(name), set()).update(names)

    with monkeypatch.context() as patched:
        patched.setattr(Keys, "_look", noted)
        read(config)
    elsewhere = re.compile(r"quant|compression|rope|architectures|\[")
    return {
        path: names
        for path, names in found.items()
        if path.rpartition(".")[2] not in CORE
        and not elsewhere.search(path)
        and not isinstance(value_at(config, path), dict | list)
    }


def moves(config: dict[str, Any], path: str, before: tuple[object, ...]) -> bool:
    """Tell whether some value of a key gives another answer than the config as it is."""
    value = value_at(config, path)
    tries: tuple[object, ...] = (True, False, 1, 2, 3, 8, 64, 256)
    if isinstance(value, bool):
        tries = (not value,)
    elif isinstance(value, int) and value:
        tries = (2 * value, value + 1)
    for tried in tries:
        try:
            if answer(read(with_value(config, path, tried))) != before:
                return True
        except InputError:
            continue
    return False


@pytest.fixture(scope="module")
def configs() -> dict[str, dict[str, Any]]:
    found = {name: stated(name) for name in known_classes()}
    return {name: config for name, config in found.items() if config is not None}


def test_every_class_can_be_stated_in_full(configs: dict[str, dict[str, Any]]) -> None:
    assert sorted(set(known_classes()) - set(configs)) == []


def test_no_answer_is_silent_about_a_core_dimension(configs: dict[str, dict[str, Any]]) -> None:
    verdicts: Counter[str] = Counter()
    silent: list[str] = []
    turn = 0
    # Every class when fuzzing; else a third of them, as they have most keys in common.
    for name, config in thinned(list(configs.items()), 3):
        before = answer(read(config))
        for path in sizes(config):
            key = path.rpartition(".")[2]
            place: Any = config
            for part in path.split("."):
                place = place[part]
            if not decides(config, path, place, before):
                continue
            wrong = [{key: None}, *({word: place} for word in misspelt(key))]
            wrong += [{key: value} for value in spoilt(place)]
            # Left out everywhere; of the other ways, each key has the next one, and every one under `make fuzz`.
            turn += 1
            chosen = wrong if TIMES > 1 else [wrong[turn % len(wrong)]]
            for one in (without(config, path), *(without(config, path, **instead) for instead in chosen)):
                verdict = judged(one, key)
                verdicts[verdict] += 1
                if verdict == "silent":
                    silent.append(f"{name}: {path}")
    print(f"{len(configs)} classes, {verdicts.total():,} configs: {dict(verdicts)}")
    assert not silent


def test_no_answer_is_silent_about_an_optional_key_that_decides_bytes(
    configs: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts: Counter[str] = Counter()
    silent: list[str] = []
    # Every class when fuzzing; else one in fifteen.
    for config in thinned(list(configs.values()), 15):
        before = answer(read(config))
        for path, names in optional_keys(config, monkeypatch).items():
            if not moves(config, path, before):
                continue
            for value in ("missing", None):
                tried = with_value(config, path, None)
                if value == "missing":
                    tried = without(tried, path)
                verdict = min(judged(tried, name) for name in names)  # refused, said, silent: the best
                verdicts[verdict] += 1
                if verdict == "silent":
                    silent.append(f"{config['architectures'][0]}: {path} {value}")
    print(f"{verdicts.total():,} configs: {dict(verdicts)}")
    assert not silent
