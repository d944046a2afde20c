"""Whole data releases at their own address in a built site."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
import tiny

from kvreport.site.build import build as build_report

pytestmark = pytest.mark.slow


def listed(site) -> dict[str, list[str]]:
    """Addresses of each release's files on the data page, by version."""
    html = site.html("data")
    return {
        version: re.findall(rf'href="(releases/{re.escape(version)}/[^"]+)"', html)
        for version in re.findall(r'id="tables-([\d.]+)"', html)
    }


def test_the_page_lists_this_release_and_the_one_before(tiny_site):
    found = listed(tiny_site)
    assert list(found)[-1] == tiny.OLD_RELEASE
    assert len(found) == 2
    for addresses in found.values():
        assert addresses
        for address in addresses:
            assert (tiny_site.folder / "data" / address).is_file()


def test_every_file_is_what_its_sums_state(tiny_site):
    for version in listed(tiny_site):
        folder = tiny_site.folder / "data/releases" / version
        lines = (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()
        stated = {name: digest for digest, name in (line.split("  ") for line in lines)}
        assert {path.name for path in folder.iterdir()} == {*stated, "SHA256SUMS"}
        for name, digest in stated.items():
            assert sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_old_release_is_unchanged_and_the_new_one_is_the_download(tiny_site):
    new, old = listed(tiny_site)
    releases = tiny_site.folder / "data/releases"
    assert (releases / old / "capacity.parquet").read_bytes() == b"every row of 2020"
    whole = tiny_site.folder / "downloads/capacity.parquet"
    assert (releases / new / "capacity.parquet").read_bytes() == whole.read_bytes()


def test_the_next_site_takes_the_releases_of_this_one(tiny_site, tmp_path: Path):
    for _ in range(2):  # also where the report is kept between builds
        report = build_report(
            data=tiny_site.catalog,
            models="deepseek-ai*",
            gpus="h100*",
            cache=tmp_path / "cache",
            dataset=False,
            releases=tiny_site.folder / "data/releases",
        )
        report.write_files(tmp_path / "site")
        for version, addresses in listed(tiny_site).items():
            for address in addresses:
                assert f"data/{address}" in report.file_names
                before, after = (root / "data" / address for root in (tiny_site.folder, tmp_path / "site"))
                assert before.read_bytes() == after.read_bytes(), version
