"""What the pages' pickers and the box for free text look through: models and accelerators with their names.

``downloads/v1/picker.json``: ``models`` are [slug, name, maker, release, common, other names] and the format of 4-bit
floating-point weights that the release stores, if it does, ``gpus`` are
[id, name, maker, release, common, other names, advertised memory], and so are ``machines``, which people have at home, with
the computers that have a chip in place of its memory; ``instances`` are machine types of clouds, each with its accelerator and
how many it has. Models come newest first. ``common`` marks those that published
start-up logs and quantized copies are about most often, and the accelerators that most readers know. ``servers`` has the flags
of vLLM's and SGLang's servers: those of the pages' state by their key in an address, and those that change no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.cloud_instances import CloudInstances
from kvreport.catalog.home_machines import HomeMachines, home_accelerators
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.observation import load_observations
from kvreport.catalog.server_flags import flag_table
from kvreport.publish.profiles import FOLDER, encode
from kvreport.publish.site_data import SiteData
from kvreport.query import options
from kvreport.resources import data_dir

ADDRESS: Final = f"{FOLDER}/picker.json"
COMMON: Final = 14
"""Models listed as commonly used."""


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the file."""
    yield ADDRESS, encode(facts(site))


def facts(site: SiteData) -> dict[str, Any]:
    """Return the file's content."""
    common = common_models(site)
    newest = sorted(site.models, key=lambda model: (model.release or "", model.name), reverse=True)
    return {
        "models": [
            [
                model.slug,
                model.name,
                model.maker,
                model.release,
                int(model.id in common),
                list(model.aliases),
                *([model.weight_format] if "fp4" in model.weight_format else []),
            ]
            for model in newest
        ],
        "gpus": [
            [
                gpu.id,
                gpu.name,
                gpu.vendor,
                gpu.release,
                int(gpu.id in site.known_gpus),
                list(gpu.aliases),
                gpu.memory.advertised_label or "",
            ]
            for gpu in site.gpus
        ],
        "machines": [
            [one.id, one.name, one.vendor, one.release, 0, list(one.aliases), list(computers)]
            for one, computers in home_machines(site.catalog)
        ],
        "instances": {
            name: [one.gpu, one.devices]
            for one in CloudInstances.need().instances
            if any(gpu.id == one.gpu for gpu in site.gpus)
            for name in one.names
        },
        "servers": {family: server_flags(data_dir(), family) for family in ("vllm", "sglang")},
    }


def server_flags(folder: Path, family: str) -> dict[str, Any]:
    """Return what a start command of an engine says to a page.

    Returns:
        ``keys``: the key in an address of every flag that a page follows. ``switches``: those of them without a value.
        ``dropped``: values that leave the choice to the server, by flag. ``idle``: flags that change no memory, apart by
        spaces, by the number of words that follow them. Of several words, one is taken.
    """
    by_flag = {name: option.url for option in options() if option.url for name in option.flags}
    found: dict[str, Any] = {"keys": {}, "switches": [], "dropped": {}, "idle": {"0": "", "1": ""}}
    for name, flag in flag_table(folder, family).server.spellings():
        takes = "1" if flag.takes == "+" else flag.takes
        if flag.group.effect == "none" and takes in found["idle"]:
            found["idle"][takes] = f"{found['idle'][takes]} {name}".strip()
        key = by_flag.get(flag.group.ours or "")
        if flag.group.effect != "followed" or key is None or flag.takes not in {"0", "1"}:
            continue
        found["keys"][name] = key
        if flag.takes == "0":
            found["switches"].append(name)
        dropped = [value for value, ours in flag.group.values.items() if not ours]
        if key == "kv":
            dropped.append("auto")
        if dropped:
            found["dropped"][name] = dropped
    return found


def home_machines(catalog: Catalog) -> tuple[tuple[Accelerator, tuple[str, ...]], ...]:
    """The machines that have a page of their own on the public site, with the computers that have each; none for another catalog."""
    public = catalog.folder.resolve() == data_dir().resolve()
    listed = HomeMachines.read(catalog.folder) if public else None
    if listed is None:
        return ()
    own = (catalog.accelerator(name) for name in listed.also)
    every = (*own, *home_accelerators(catalog.folder).values())
    return tuple((one, listed.apple.computers_of(one)) for one in every)


def common_models(site: SiteData) -> frozenset[str]:
    """Return the ids of the models that published logs and quantized copies are about most often."""
    uses: Counter[str] = Counter()
    ids = {name.lower(): model for model in site.models for name in (model.id, *model.aliases)}
    for observation in load_observations(site.catalog.folder):
        model = ids.get((observation.model or "").lower())
        if model is not None:
            uses[_original(model)] += 1
    for model in site.models:
        if model.quantized_from is not None:
            uses[model.quantized_from] += 1
    here = {model.id for model in site.models}
    ranked = sorted((name for name in uses if name in here), key=lambda name: (-uses[name], name))
    return frozenset(ranked[:COMMON])


def _original(model: Model) -> str:
    return model.quantized_from or model.id
