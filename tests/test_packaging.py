"""What another project gets when it installs ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kvreport
from kvreport import resources
from kvreport.publish import own_wheel

CARRIED = {"_data": "data", "_templates": "templates", "_assets": "docs/assets"}


def build(source: Path, target: Path) -> Path:
    """Build the wheel of a source tree with the backend that the lock pinned, off the network."""
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", target, source], check=True
    )
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def archive(repository, tmp_path_factory) -> Path:
    """The source archive, as it would be published."""
    target = tmp_path_factory.mktemp("sdist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", target],
        cwd=repository,
        check=True,
        capture_output=True,
    )
    (path,) = target.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(archive, tmp_path_factory) -> Path:
    """The wheel, built from the source archive alone: so both are whole."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return build(source, tmp_path_factory.mktemp("wheel"))


def shipped(repository: Path, folder: str) -> set[str]:
    """The files of a folder that git knows or would take, relative to it."""
    if not shutil.which("git") or not (repository / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return {str(Path(name).relative_to(folder)) for name in listed if (repository / name).is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(("inside", "folder"), CARRIED.items())
def test_the_wheel_carries_every_file_of(repository, wheel, inside, folder):
    prefix = f"kvreport/{inside}/"
    with zipfile.ZipFile(wheel) as archive:
        carried = {name.removeprefix(prefix) for name in archive.namelist() if name.startswith(prefix)}
    assert carried
    assert carried == shipped(repository, folder)


@pytest.mark.slow
def test_the_wheel_declares_its_command_its_plugin_and_its_types(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        entries = archive.read(name).decode()
        assert "kvreport/py.typed" in archive.namelist()
    assert "kvreport = kvreport.cli:main" in entries
    assert "[mkdocs.plugins]" in entries
    assert "kvreport = kvreport.adapters.mkdocs_plugin:KvreportPlugin" in entries


@pytest.mark.slow
def test_an_unpacked_wheel_reads_its_own_files(wheel, tmp_path):
    """Away from the checkout, the package finds its data inside itself."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)  # noqa: S202  our own archive
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kvreport import resources as r;"
        "print(r.data_dir(), r.templates_dir(), r.assets_dir(), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    package = tmp_path / "kvreport"
    assert done.stdout.split() == [str(package / inside) for inside in CARRIED]


@pytest.mark.slow
def test_the_site_offers_this_wheel_with_its_checksum(repository, wheel, tmp_path):
    """To get the command, a reader of a published site had to ask its publisher."""
    found = dict(own_wheel.files(tmp_path / "cache"))
    (address, content), (beside, checksum) = found.items()
    assert (
        address
        == f"downloads/kvreport-{kvreport.__version__}-py3-none-any.whl"
        == beside.removesuffix(".sha256")
    )
    (tmp_path / Path(address).name).write_bytes(content)
    (tmp_path / "sums").write_bytes(checksum)
    subprocess.run(
        ["sha256sum", "--check", "--strict", "sums"], cwd=tmp_path, check=True, capture_output=True
    )
    with zipfile.ZipFile(tmp_path / Path(address).name) as offered, zipfile.ZipFile(wheel) as built:
        assert {name: offered.read(name) for name in offered.namelist()} == {
            name: built.read(name) for name in built.namelist()
        }
    assert own_wheel._built() == content, "the same bytes again"
    page = (repository / "docs" / "about" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"kvreport-[\d.]+-py3-none-any\.whl", page)) == {own_wheel.NAME}
    assert f"](../{address})" in page
    assert f"](../{beside})" in page


def test_an_installed_package_offers_no_wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "kvreport")
    assert not [*own_wheel.files(tmp_path)]


def test_a_checkout_reads_the_folders_that_people_edit(repository):
    assert resources.data_dir() == repository / "data"
    assert resources.templates_dir() == repository / "templates"
    assert resources.assets_dir() == repository / "docs" / "assets"


def test_a_broken_installation_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "kvreport")
    with pytest.raises(FileNotFoundError, match=r"_data.*data"):
        resources.data_dir()
