"""What is kept between builds: never a lie, and the same site from any place, zone, locale or day."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import faults
import pytest
import tiny
from fuzzing import examples

pytestmark = [pytest.mark.slow]

MODELS = ("meta-llama--Llama-3.1-8B-Instruct", "openai--gpt-oss-20b")
ACCELERATORS = ("h100-sxm-80gb", "rtx-4090")
EXECUTED = """\
  - mkdocs-jupyter:
      include: ["chapters/*.py"]
      execute: true
      allow_errors: false
"""
CHAPTER = """\
# %% [markdown]
# # One chapter
#
# A token costs {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }}.

# %%
from kvreport.book.chapter import table

table("cap", ["a", "b"], [["x", 40 + 2]])
"""
ANOTHER_DAY = """\
import datetime
import time

AHEAD = 400.25 * 86_400
now, now_ns, localtime, gmtime, strftime = time.time, time.time_ns, time.localtime, time.gmtime, time.strftime
time.time = lambda: now() + AHEAD
time.time_ns = lambda: now_ns() + int(AHEAD * 1e9)
time.localtime = lambda seconds=None: localtime(time.time() if seconds is None else seconds)
time.gmtime = lambda seconds=None: gmtime(time.time() if seconds is None else seconds)
time.strftime = lambda form, moment=None: strftime(form, time.localtime() if moment is None else moment)


class Later(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)


# The class itself stays: compiled modules hold its layout.
import mkdocs.utils

mkdocs.utils.datetime = Later
"""
"""A ``sitecustomize`` under which a build believes that it is more than a year later."""

OWN = {
    "USER": "zebulon-quux",
    "LOGNAME": "zebulon-quux",
    "HOSTNAME": "build-box-7731.corp.invalid",
    "EMAIL": "zebulon@corp.invalid",
    "CI_JOB_TOKEN": "glcbt-64_hunter2hunter2",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIxK7MDENGxbPxRfiCYzEXAMPLE",
}
"""What an environment holds that is nobody's business."""

LLAMA = "models/meta-llama--Llama-3.1-8B-Instruct/index.html"


def project(repository: Path, root: Path) -> Path:
    """A project of two models and two accelerators; return its configuration."""
    (root / "docs").mkdir(parents=True)
    (root / "docs/by-hand.md").write_text("# By hand\n\n[A model](models/index.md)\n", encoding="utf-8")
    data = tiny.copy_catalog(repository, root / "data")
    for kind, kept in (("models", MODELS), ("accelerators", ACCELERATORS)):
        for file in (data / kind).iterdir():
            if file.stem not in kept:
                file.unlink()
    (root / "docs/chapters").mkdir()
    (root / "docs/chapters/01-one.py").write_text(CHAPTER, encoding="utf-8")
    config = root / "mkdocs.yml"
    text = tiny.CONFIGURATION.format(docs=root / "docs", site=root / "site", catalog=data)
    config.write_text(text.replace("plugins:\n", f"plugins:\n{EXECUTED}"), encoding="utf-8")
    return config


def start(config: Path, *, prepare: str = "", **environment: str) -> subprocess.Popen[str]:
    """Begin a strict build in a process of its own, which runs the Python of ``prepare`` before."""
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("SOURCE_DATE_EPOCH", "LC_ALL", "TZ", "PYTHONUTF8")
    }
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(config)]
    # A shell starts what it puts behind itself with SIGINT ignored, which children keep.
    become = (
        f"import os, resource, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); {prepare or 'pass'}; "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", become, *command],
        env=inherited | environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*builds: subprocess.Popen[str]) -> None:
    said = [build.communicate(timeout=300)[1] for build in builds]
    assert [build.returncode for build in builds] == [0] * len(builds), said


def digests(site: Path) -> dict[str, str]:
    return {
        path.relative_to(site).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(site.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, built once; its folder."""
    root = tmp_path_factory.mktemp("kept") / "project"
    finish(start(project(repository, root)))
    return root


@pytest.fixture
def mine(built: Path, tmp_path: Path) -> Path:
    """A copy of the built project, caches and all, in another folder."""
    root = tmp_path / "copy"
    shutil.copytree(built, root)
    config = root / "mkdocs.yml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace(str(built), str(root)), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def elsewhere(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same project built cold, with all else different; its folder."""
    root = tmp_path_factory.mktemp("elsewhere")
    home, clock = root / "home", root / "clock"
    home.mkdir()
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(ANOTHER_DAY, encoding="utf-8")
    config = project(repository, root / "ä very/long way from there")
    finish(
        start(
            config,
            prepare="os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])",
            TZ="Pacific/Kiritimati",
            LC_ALL="C",
            PYTHONHASHSEED="77",
            PYTHONUTF8="1",
            HOME=str(home),
            PYTHONPATH=os.pathsep.join(filter(None, [str(clock), os.environ.get("PYTHONPATH", "")])),
            **OWN,
        )
    )
    return config.parent


def test_place_day_zone_locale_processors_hash_seed_and_caches_change_no_byte(built, elsewhere):
    first = digests(built / "site")
    assert len(first) > 40
    assert {"sitemap.xml.gz", "search/search_index.json", "downloads/capacity.parquet"} <= set(first)
    assert "learn/one/index.html" in first
    assert digests(elsewhere / "site") == first
    finish(
        start(elsewhere / "mkdocs.yml", TZ="America/Anchorage", PYTHONHASHSEED="5")
    )  # with everything kept
    assert digests(elsewhere / "site") == first


def test_another_day_is_another_day_indeed(elsewhere):
    said = (
        "import time; from mkdocs.utils import get_build_date; print(get_build_date(), time.strftime('%F'))"
    )
    clock = {**os.environ, "PYTHONPATH": str(elsewhere.parents[1] / "clock")}
    days = subprocess.run([sys.executable, "-c", said], env=clock, capture_output=True, text=True, check=True)
    (day,) = set(days.stdout.split())
    assert day > (datetime.now(tz=UTC) + timedelta(days=300)).date().isoformat()


def test_the_day_of_a_build_is_the_releases_or_the_one_it_is_told(built, mine, build_site, monkeypatch):
    release = (built / "data/RELEASE").read_text(encoding="ascii").strip().replace(".", "-")
    days = re.findall(r"<lastmod>([^<]*)", (built / "site/sitemap.xml").read_text(encoding="utf-8"))
    assert set(days) == {release}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # 2023-11-14 22:13:20 UTC
    build_site(mine / "mkdocs.yml")
    days = re.findall(r"<lastmod>([^<]*)", (mine / "site/sitemap.xml").read_text(encoding="utf-8"))
    assert set(days) == {"2023-11-14"}
    assert "2023-11-14T00:00:00Z" in (mine / "site/data/releases.xml").read_text(encoding="utf-8")


def opened(path: Path) -> bytes:
    content = path.read_bytes()
    return content + (gzip.decompress(content) if path.suffix == ".gz" else b"")


@pytest.mark.parametrize("place", ["built", "elsewhere"])
def test_nothing_published_names_the_machine_that_built_it(place, request, repository):
    root = request.getfixturevalue(place)
    words = {
        str(root),
        str(root.parent / "home"),
        str(repository),
        str(Path.home()) + "/",
        tempfile.gettempdir() + "/",
        sys.prefix,
        sys.base_prefix,
        socket.gethostname(),
        *OWN.values(),
    }
    # A machine may be called "vm": as a word, that says nothing.
    known = [word.encode() for word in sorted(words) if len(word) > 4]
    assert len(known) > 8
    folders = re.compile(
        rb"(?<![\w.:-])/(?:home|root|Users|private|var/folders|tmp|builds)/|[A-Z]:\\\\Users\\\\"
    )
    files = [path for path in sorted((root / "site").rglob("*")) if path.is_file()]
    assert len(files) > 40
    for path in files:
        content = opened(path)
        assert not [word for word in known if word in content], path
        if path.suffix not in (".parquet", ".woff2", ".jpg", ".png") and "vega" not in path.name:
            assert not folders.search(content), path


def test_the_search_for_machines_would_find_them(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"/home/me/x"))
    assert b"/home/me/x" in opened(tmp_path / "a.csv.gz")


def everything_kept(root: Path) -> list[Path]:
    return [path for path in sorted((root / ".cache/kvreport").rglob("*")) if path.is_file()]


@pytest.mark.parametrize("harm", ["cut", "empty", "flipped", "garbage"])
def test_damaged_files_are_noticed_and_made_anew(built, mine, harm, build_site):
    kept = everything_kept(mine)
    kinds = {path.relative_to(mine / ".cache/kvreport").parts[0].split("-")[0] for path in kept}
    assert {"charts", "dataset", "fonts", "report", "vega"} <= kinds
    for path in kept:
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(
            {
                "cut": whole[:middle],
                "empty": b"",
                "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
                "garbage": b"\x80\x05]\x94." + whole,
            }[harm]
        )
    build_site(mine / "mkdocs.yml")
    assert digests(mine / "site") == digests(built / "site")


def test_a_download_that_was_edited_in_the_site_is_mended(built, mine, build_site):
    build_site(mine / "mkdocs.yml")  # its files are links into the cache now
    with (mine / "site/downloads/models.csv").open("ab") as file:
        file.write(b"someone was here\n")
    build_site(mine / "mkdocs.yml")
    assert digests(mine / "site") == digests(built / "site")


def test_a_changed_number_changes_page_chart_dataset_and_browser_data(built, mine, build_site):
    file = mine / "data/accelerators/h100-sxm-80gb.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("value: 84943715697", "value: 64943715697"), encoding="utf-8")
    build_site(mine / "mkdocs.yml")
    before, after = digests(built / "site"), digests(mine / "site")
    changed = {name for name in before if before[name] != after.get(name)}
    assert {LLAMA, "gpus/h100-sxm-80gb/index.html", "index.html", "downloads/accelerators.csv"} <= changed
    assert {"downloads/capacity.parquet", "downloads/capacity.csv.gz", "downloads/SHA256SUMS"} <= changed
    assert "downloads/v1/site.json" in changed
    drawn = re.search(
        r'<svg class="kv-svg[^"]*".*?</svg>', (built / "site" / LLAMA).read_text(encoding="utf-8"), re.DOTALL
    )
    assert drawn[0] not in (mine / "site" / LLAMA).read_text(encoding="utf-8")


def test_a_changed_template_changes_the_page(mine, build_site):
    folder = mine / "templates"
    (folder / "model").mkdir(parents=True)
    (folder / "model/serve.html").write_text("<p>First.</p>", encoding="utf-8")
    config = mine / "mkdocs.yml"
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace("      catalog:", f"      templates: {folder}\n      catalog:"), encoding="utf-8"
    )
    for words in ("First.", "Second."):
        (folder / "model/serve.html").write_text(f"<p>{words}</p>", encoding="utf-8")
        build_site(config)
        assert words in (mine / "site" / LLAMA).read_text(encoding="utf-8")


def cold(mine: Path, tmp_path: Path, kept: tuple[str, ...] = ()) -> dict[str, str]:
    """Build a copy of a project without what is kept; return the digests of its site.

    Args:
        mine: The project.
        tmp_path: Where the copy is put.
        kept: What the copy may keep, as beginnings of names in the cache.
    """
    root = tmp_path / "cold"
    shutil.copytree(mine, root, ignore=shutil.ignore_patterns("site", ".cache"))
    for path in everything_kept(mine):
        place = path.relative_to(mine / ".cache/kvreport")
        if place.parts[0].startswith(kept):
            (root / ".cache/kvreport" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, root / ".cache/kvreport" / place)
    config = root / "mkdocs.yml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace(str(mine), str(root)), encoding="utf-8")
    finish(start(config))
    return digests(root / "site")


DRAWN = ("charts", "fonts", "vega")
"""What is kept under a digest of all that it is drawn from, and knows no page, template or setting of a site."""


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("what", ["model", "template", "setting", "page"])
def test_a_build_after_one_change_is_what_a_cold_build_gives(built, mine, tmp_path, what, build_site):
    """The pages that are kept depend on everything that they show: numbers, templates, settings, other pages."""
    if what == "model":
        replaced(mine / "data/models/openai--gpt-oss-20b.yaml", "vocabulary: 201088", "vocabulary: 201024")
    elif what == "template":
        (mine / "overrides/gpu").mkdir(parents=True)
        (mine / "overrides/gpu/sources.html").write_text("<p>Elsewhere.</p>", encoding="utf-8")
        replaced(
            mine / "mkdocs.yml",
            "      catalog:",
            f"      templates: {mine / 'overrides'}\n      catalog:",
        )
    elif what == "setting":
        replaced(mine / "mkdocs.yml", "site_name: ", "site_name: Other ")
    else:
        replaced(mine / "docs/by-hand.md", "# By hand", "# Another title")
    build_site(mine / "mkdocs.yml")
    warm = digests(mine / "site")
    assert warm == cold(mine, tmp_path, () if what == "model" else DRAWN)
    assert warm != digests(built / "site")


def test_a_page_that_has_not_changed_goes_through_no_template(mine, build_site, monkeypatch):
    from kvreport.adapters.page_cache import PageCache

    looked: dict[str, bool] = {}
    of_page = PageCache.key

    def spied(self, page, ours, tags):
        key = of_page(self, page, ours, tags)
        looked[page.url] = self.find(key) is not None
        return key

    monkeypatch.setattr(PageCache, "key", spied)
    build_site(mine / "mkdocs.yml")  # in this process the catalog has another path, which no page shows
    looked.clear()
    build_site(mine / "mkdocs.yml")
    assert len(looked) > 10
    assert all(looked.values())
    replaced(mine / "data/models/openai--gpt-oss-20b.yaml", "vocabulary: 201088", "vocabulary: 201024")
    build_site(mine / "mkdocs.yml")
    made = {url for url, kept in looked.items() if not kept}
    assert "models/openai--gpt-oss-20b/" in made
    assert "models/meta-llama--Llama-3.1-8B-Instruct/" not in made


def test_a_dead_link_on_a_kept_page_is_told_in_every_build(mine, build_site):
    replaced(mine / "docs/by-hand.md", "# By hand", "# By hand\n\n[Another](another.md)\n")
    (mine / "docs/another.md").write_text("# Another\n\nText.\n", encoding="utf-8")
    build_site(mine / "mkdocs.yml")
    assert 'href="../another/"' in (mine / "site/by-hand/index.html").read_text(encoding="utf-8")
    replaced(mine / "docs/by-hand.md", "[Another](another.md)", '<a href="../another/">Another</a>')
    build_site(mine / "mkdocs.yml")
    (mine / "docs/another.md").unlink()
    from mkdocs.exceptions import Abort

    for _ in range(2):
        with pytest.raises(Abort):  # a strict build
            build_site(mine / "mkdocs.yml")


def test_a_chart_is_drawn_anew_for_other_code_colours_or_fonts(monkeypatch):
    from kvreport.site.kit import drawing, fonts
    from kvreport.site.kit import social_cards as cards

    def key() -> str:
        drawing._code.cache_clear()
        return drawing._code("<svg></svg>")

    try:
        keys = [key(), key()]
        assert keys[0] == keys[1]
        monkeypatch.setattr(fonts, "CHARACTERS", fonts.CHARACTERS + "€₿")
        keys.append(key())
        monkeypatch.setattr(cards, "looks", lambda: ((".kv-tick",), {"fill": "#123456"}))
        keys.append(key())
        monkeypatch.setattr(drawing, "version", lambda _: "9.9")
        keys.append(key())
        monkeypatch.setattr(drawing, "__file__", __file__)
        keys.append(key())
        assert len(set(keys)) == 5
    finally:
        drawing._code.cache_clear()


def test_a_font_is_cut_anew_for_other_characters(tmp_path, monkeypatch):
    from kvreport.site.kit import fonts

    monkeypatch.setattr(fonts, "_cut", lambda _: fonts.CHARACTERS.encode())
    first = dict(fonts.web_fonts(tmp_path))
    monkeypatch.setattr(fonts, "CHARACTERS", "abc")
    assert set(dict(fonts.web_fonts(tmp_path)).values()) == {b"abc"}
    assert b"abc" not in first.values()


def test_two_builds_side_by_side_do_not_harm_each_other(built, mine, build_site):
    for number, path in enumerate(everything_kept(mine)):
        if number % 4 == 0 or path.parent.name != "charts":
            path.unlink()
    config = mine / "mkdocs.yml"
    finish(start(config), start(config))
    assert digests(mine / "site") == digests(built / "site")
    assert not list(mine.glob(".site-*"))
    build_site(config)  # and what they kept is sound
    assert digests(mine / "site") == digests(built / "site")


@pytest.mark.parametrize("fault", ["catalog", "page", "warning"])
def test_a_build_that_fails_leaves_the_last_good_site(mine, fault, build_site):
    from mkdocs.exceptions import Abort

    before = digests(mine / "site")
    if fault == "catalog":
        (mine / "data/RELEASE").write_text("someday\n", encoding="ascii")
    elif fault == "page":
        (mine / "docs/wrong.md").write_text("{{ 1 byte = kv_per_token('llama-3.1-8b') }}\n", encoding="utf-8")
    else:
        (mine / "docs/wrong.md").write_text("[nowhere](nowhere.md)\n", encoding="utf-8")
    with pytest.raises(Abort):
        build_site(mine / "mkdocs.yml")
    assert digests(mine / "site") == before
    assert not list(mine.glob(".site-*"))


def test_a_build_that_is_interrupted_leaves_the_last_good_site(mine, build_site, monkeypatch):
    from kvreport.site.build import Report

    before = digests(mine / "site")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "write_files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_site(mine / "mkdocs.yml")
    assert digests(mine / "site") == before


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL], ids=lambda sign: sign.name)
def test_a_build_that_is_stopped_anywhere_leaves_the_last_good_site(built, mine, sign, build_site):
    config, file = mine / "mkdocs.yml", mine / "data/accelerators/h100-sxm-80gb.yaml"
    before, text = digests(mine / "site"), file.read_text(encoding="utf-8")
    file.write_text(text.replace("value: 84943715697", "value: 64943715697"), encoding="utf-8")
    stopped = 0
    # Before anything is written, and when so many files of the new site are there: two moments for each signal.
    names = list(before)
    for many in (0, len(names) // 2) if sign == signal.SIGINT else (1, len(names) - 2):
        build = start(config)
        end = time.monotonic() + 120
        while build.poll() is None and time.monotonic() < end:
            folder = next((path for path in mine.glob(".site-building-*") if path.is_dir()), None)
            if folder is not None and sum(len(files) for _, _, files in os.walk(folder)) >= many:
                build.send_signal(sign)
                break
            time.sleep(0.005)
        build.communicate(timeout=60)
        if build.returncode == 0:  # it was faster, and put its site in place
            continue
        stopped += 1
        found = digests(mine / "site")
        if found != before:
            # The signal came behind the exchange of the two sites: then the new one stands, whole.
            assert many == len(names) - 2
            build_site(config)
            assert digests(mine / "site") == found
    assert stopped
    file.write_text(text, encoding="utf-8")
    build_site(config)
    assert digests(mine / "site") == digests(built / "site")
    assert not list(mine.glob(".site-*"))


@pytest.mark.parametrize(("limit", "kept"), [(40_000, True), (400_000, False)], ids=["kept", "cold"])
def test_files_that_cannot_be_written_whole_leave_the_last_good_site(built, mine, limit, kept, build_site):
    before = digests(mine / "site")
    if not kept:
        shutil.rmtree(mine / ".cache")
    build = start(
        mine / "mkdocs.yml", prepare=f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    )
    _, said = build.communicate(timeout=300)
    assert build.returncode != 0, said
    assert digests(mine / "site") == before
    assert not list(mine.glob(".site-*"))
    build_site(mine / "mkdocs.yml")  # and nothing that was cut short is believed
    assert digests(mine / "site") == digests(built / "site")


def test_a_full_disk_leaves_the_last_good_site(mine, build_site, monkeypatch):
    from mkdocs.exceptions import PluginError

    from kvreport.site.build import Report

    before = digests(mine / "site")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Report, "write_files", full)
    with pytest.raises(PluginError, match=r"site_dir: .*No space left"):
        build_site(mine / "mkdocs.yml")
    assert digests(mine / "site") == before
    assert not list(mine.glob(".site-*"))


@pytest.mark.parametrize("place", ["folder", "mount point"])
def test_whichever_change_fails_the_last_good_site_stands(built, mine, place, build_site, monkeypatch):
    """Writes, renames, links, new folders and fsyncs of a whole build: some of them here, more when fuzzing."""
    from mkdocs.exceptions import Abort, PluginError

    if place == "mount point":
        monkeypatch.setattr("kvreport.atomic.folders._is_mount", lambda path: path.name == "site")
    config, file = mine / "mkdocs.yml", mine / "data/accelerators/h100-sxm-80gb.yaml"
    text = file.read_text(encoding="utf-8")
    changed = text.replace("value: 84943715697", "value: 64943715697")
    good = digests(built / "site")
    file.write_text(changed, encoding="utf-8")
    with faults.injected(0, under=mine) as counting:
        build_site(config)
    other = digests(mine / "site")
    assert other != good
    assert counting.count > len(good)
    moments = examples(3)
    for turn in range(moments):
        before = digests(mine / "site")  # of the number that stands in the file
        file.write_text(changed if turn % 2 else text, encoding="utf-8")
        shutil.rmtree(mine / ".cache/kvreport/report")
        with faults.injected(1 + counting.count * turn // moments, under=mine) as injected:
            try:
                build_site(config)
            except (OSError, Abort, PluginError):
                assert digests(mine / "site") == before, injected.struck
        build_site(config)
        assert digests(mine / "site") == (other if turn % 2 else good)
        assert not list(mine.glob(".site*"))
        assert not list((mine / "site").glob(".kvreport*"))


def test_a_cache_that_cannot_be_written_is_a_warning(built, mine):
    config = mine / "mkdocs.yml"
    (mine / "full").write_text("a file where the cache should be", encoding="utf-8")
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace("  - kvreport:\n", "  - kvreport:\n      cache: full/cache\n"), encoding="utf-8"
    )
    build = start(config)
    _, said = build.communicate(timeout=300)
    assert build.returncode == 0, said
    assert said.count("the cache cannot be written (Not a directory); the build goes on without it") == 1
    assert digests(mine / "site") == digests(built / "site")


def test_a_web_server_of_another_user_can_read_the_site(mine):
    finish(start(mine / "mkdocs.yml", prepare="os.umask(0o077)"))
    modes = {path.is_dir(): set() for path in (mine / "site").rglob("*")}
    for path in (mine / "site", *(mine / "site").rglob("*")):
        modes[path.is_dir()].add(oct(path.stat().st_mode & 0o777))
    assert modes == {True: {"0o755"}, False: {"0o644"}}


def test_the_only_good_copy_is_put_back_before_a_build_that_fails(mine, build_site):
    """What once left nothing at all: the site set aside by a build that was killed, then a fault."""
    from mkdocs.exceptions import Abort

    before = digests(mine / "site")
    (mine / "site").rename(mine / ".site-before")
    (mine / "data/grid.yaml").write_text("contexts: []\n", encoding="utf-8")
    with pytest.raises(Abort):
        build_site(mine / "mkdocs.yml")
    assert digests(mine / "site") == before
