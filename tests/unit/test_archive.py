"""Data releases at their own address: what is kept, what is refused."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from kvreport.errors import InputError
from kvreport.publish import archive
from kvreport.publish.downloads import NOTHING, Downloads

ROWS, NAMES = b"rows of 2020", b"model\nOld 7B\n"


def release(folder: Path, version: str = "2020.01.01", rows: bytes = ROWS) -> Path:
    """Write a release as a site has published it."""
    made = folder / version
    made.mkdir(parents=True)
    lines = []
    for name, content in (("capacity.parquet", rows), ("models.csv", NAMES)):
        (made / name).write_bytes(content)
        lines.append(f"{sha256(content).hexdigest()}  {name}\n")
    (made / "SHA256SUMS").write_text("".join(lines), encoding="ascii")
    return made


def test_an_earlier_release_is_published_unchanged(tmp_path):
    release(tmp_path / "before")
    (tmp_path / "before/2020.01.01.json").write_text("{}", encoding="utf-8")  # figures: not a folder
    (found,) = archive.published(tmp_path / "before")
    assert found.version == "2020.01.01"
    assert found.names[0] == "data/releases/2020.01.01/capacity.parquet"
    for _ in range(2):  # also over an older build
        found.place(tmp_path / "site")
    placed = tmp_path / "site/data/releases/2020.01.01"
    assert (placed / "capacity.parquet").read_bytes() == ROWS
    assert (placed / "models.csv").read_bytes() == NAMES
    assert (placed / "SHA256SUMS").read_bytes() == (tmp_path / "before/2020.01.01/SHA256SUMS").read_bytes()
    (again,) = archive.published(tmp_path / "site/data/releases")  # the next site takes it from this one
    assert again.files == found.files


def test_a_label_is_another_one_for_other_numbers(tmp_path):
    release(tmp_path / "one")
    release(tmp_path / "same")
    release(tmp_path / "other", rows=b"other rows of 2020")
    one, same, other = (archive.published(tmp_path / name)[0].label for name in ("one", "same", "other"))
    assert one == same != other
    assert one.startswith("2020.01.01+")
    assert len(one) == len("2020.01.01+") + 7


def test_no_folder_is_no_release():
    assert archive.published(None) == ()
    assert archive.present(NOTHING, "2026.11.21") == ()


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (
            lambda folder: (folder / "models.csv").write_bytes(b"other"),
            "'models.csv' is not what SHA256SUMS states",
        ),
        (lambda folder: (folder / "models.csv").unlink(), "'models.csv' is missing"),
        (lambda folder: (folder / "more.csv").write_bytes(b""), "'more.csv' is not in SHA256SUMS"),
        (lambda folder: (folder / "SHA256SUMS").unlink(), "SHA256SUMS cannot be read"),
        (
            lambda folder: (folder / "SHA256SUMS").write_text(f"{'0' * 64}  ../x\n"),
            "not a digest and a file name",
        ),
        (lambda folder: (folder / "SHA256SUMS").write_text(""), "not a digest and a file name"),
    ],
)
def test_a_damaged_release_stops_the_build(tmp_path, spoil, fault):
    spoil(release(tmp_path))
    with pytest.raises(InputError, match=fault):
        archive.published(tmp_path)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    made = release(tmp_path / "before")
    (tmp_path / "secret").write_bytes(NAMES)
    (made / "models.csv").unlink()
    (made / "models.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="not a plain file"):
        archive.published(tmp_path / "before")


def test_a_folder_that_does_not_exist_is_an_error_in_words(tmp_path):
    with pytest.raises(InputError, match="a folder per release"):
        archive.published(tmp_path / "none")


def test_a_version_never_changes(tmp_path):
    release(tmp_path / "a")
    release(tmp_path / "b", "2026.11.21")
    before = archive.published(tmp_path / "a")
    now = archive.published(tmp_path / "b")
    assert [one.version for one in archive.joined(before, now)] == ["2026.11.21", "2020.01.01"]
    assert archive.joined(now, now) == now
    release(tmp_path / "c", "2026.11.21", rows=b"other rows")
    with pytest.raises(InputError, match="raise the version in RELEASE"):
        archive.joined(archive.published(tmp_path / "c"), now)


def test_the_present_dataset_is_kept_by_its_tables(tmp_path):
    made = release(tmp_path)
    (made / "SHA256SUMS").write_text(
        (made / "SHA256SUMS").read_text() + f"{'0' * 64}  models/one.parquet\n", encoding="ascii"
    )
    files = tuple(
        (name, (made / name).stat().st_size) for name in ("capacity.parquet", "models.csv", "SHA256SUMS")
    )
    (found,) = archive.present(Downloads(made, files, 1), "2026.11.21")
    assert [name for name, _, _ in found.files] == ["capacity.parquet", "models.csv"]
    assert found.sums.count("\n") == 2
