"""The lock says what pyproject.toml asks for, by hash, and names no registry."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PYTHONS = ("3.11", "3.12", "3.13")
PIN = re.compile(
    r"^(?P<pin>[a-z0-9-]+==[^\\]+?) \\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)


def locked(text: str, python: str) -> dict[str, Version]:
    """Which version of each package a Python gets on Linux."""
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    pins = [Requirement(found["pin"]) for found in PIN.finditer(text)]
    return {
        canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("=="))
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(here)
    }


LOCKS = ("core", "dev", "runtime", "site")


def asked(project: dict, python: str, lock: str) -> list[Requirement]:
    """What pyproject.toml names for a Python and a lock."""
    groups = project["dependency-groups"]
    extras = project["project"]["optional-dependencies"]
    lines = list(project["project"]["dependencies"])
    if lock != "core":
        lines += [
            line for name in ("data", "site") for line in extras[name] if not line.startswith("kvreport")
        ]
    if lock != "runtime":
        lines += groups["build"]
    if lock in ("dev", "site"):
        lines += [line for line in groups["site"] if isinstance(line, str)]
    if lock == "dev":
        lines += [line for line in groups["dev"] if isinstance(line, str)]
    requirements = map(Requirement, lines)
    return [
        one for one in requirements if one.marker is None or one.marker.evaluate({"python_version": python})
    ]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_satisfies_what_is_asked(repository, name, python):
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    pins = locked((repository / f"requirements/{name}.txt").read_text(encoding="utf-8"), python)
    wrong = [
        f"{one}: the lock has {pins.get(canonicalize_name(one.name))}; run make lock"
        for one in asked(project, python, name)
        if not (found := pins.get(canonicalize_name(one.name))) or found not in one.specifier
    ]
    assert wrong == []


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash_and_no_address(repository, name):
    text = (repository / f"requirements/{name}.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^[a-z0-9-]+==", text, re.M)
    assert len(PIN.findall(text)) == len(pins) > (10 if name == "core" else 50)
    assert "://" not in text
    assert "index-url" not in text


def test_the_tests_run_with_what_the_site_is_built_with(repository):
    runtime, site, dev = (
        locked((repository / f"requirements/{name}.txt").read_text(encoding="utf-8"), "3.12")
        for name in ("runtime", "site", "dev")
    )
    assert runtime.items() <= site.items() <= dev.items()


def test_the_site_installs_no_browser_driver_no_test_engine_and_no_other_data_frames(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    site = locked((repository / "requirements/site.txt").read_text(encoding="utf-8"), "3.12")
    tests = {
        canonicalize_name(Requirement(one).name)
        for one in project["dependency-groups"]["dev"]
        if isinstance(one, str)
    }
    assert {"playwright", "polars", "dask", "duckdb", "pytest", "properdocs", "mypy"} <= tests
    assert site.keys() & tests <= {"beautifulsoup4", "packaging", "jsonschema", "lxml"}, (
        "needed by the site's own packages"
    )


@pytest.mark.parametrize("python", PYTHONS)
def test_the_action_installs_what_is_tested_and_no_more(repository, python):
    core, dev = (
        locked((repository / f"requirements/{name}.txt").read_text(encoding="utf-8"), python)
        for name in ("core", "dev")
    )
    assert core.items() <= dev.items()
    assert len(core) <= 16


def test_an_estimate_installs_ten_distributions_at_most(repository):
    """`pip install kvreport` alone, with all that its dependencies bring on Linux."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed, wanted = {"kvreport"}, [Requirement(one).name for one in project["dependencies"]]
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in installed:
            continue
        installed.add(name)
        further = map(Requirement, distribution(name).requires or ())
        wanted += [one.name for one in further if one.marker is None or one.marker.evaluate({"extra": ""})]
    assert len(installed) <= 10, sorted(installed)


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_has_everything_that_its_packages_need(repository, name):
    """So that nothing is resolved at installation, with the extras that one package asks of another."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pins = locked((repository / f"requirements/{name}.txt").read_text(encoding="utf-8"), python)
    wanted, seen, lacking = asked(project, python, name), set(), []
    while wanted:
        one = wanted.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen:
            continue
        seen.add(key)
        if key[0] not in pins:
            lacking.append(str(one))
            continue
        for line in map(Requirement, distribution(one.name).requires or ()):
            extras = ("", *one.extras)
            if line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append(line)
    assert lacking == []


def test_installing_the_lock_resolves_nothing(repository):
    """An old pip takes a package's extras for a package of its own, and its newest release, which has no hash."""
    places = ["Makefile", "action.yml", ".github/workflows/test.yml", "kvreport/adapters/scaffold.py"]
    installs = [
        line
        for place in places
        for line in (repository / place).read_text(encoding="utf-8").splitlines()
        if "install" in line and "--require-hashes" in line
    ]
    assert len(installs) == 5
    assert all("--no-deps" in line for line in installs)
