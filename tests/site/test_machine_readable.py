"""What the site has for programs and other sites: schemas, badges, a card, Markdown twins, headers, feeds."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from kvreport.publish import schemas

pytestmark = [pytest.mark.slow]


def read(tiny_site, name):
    return (tiny_site.folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("site", "downloads/v1/site.json"),
        ("model", "downloads/v1/models/*.json"),
        ("badge", "badge/*.json"),
        ("engine-releases", "data/engine-releases.json"),
    ],
)
def test_published_json_satisfies_its_schema(tiny_site, name, pattern):
    schema = json.loads(read(tiny_site, f"downloads/v1/schemas/{name}.json"))
    assert schema["$id"] == f"https://example.org/tiny/downloads/v1/schemas/{name}.json"
    jsonschema.Draft202012Validator.check_schema(schema)
    found = sorted(tiny_site.folder.glob(pattern))
    assert found
    for path in found:
        jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


def test_every_schema_is_published(tiny_site):
    names = {path.stem for path in (tiny_site.folder / "downloads/v1/schemas").iterdir()}
    assert names == set(schemas.TITLES)


def test_a_badge_says_what_the_models_page_says(tiny_site):
    published = json.loads(read(tiny_site, "badge/meta-llama--Llama-3.1-8B-Instruct.json"))
    found = published["gpus"]["h100-sxm-80gb"]
    from kvreport import estimate

    fits = estimate("llama-3.1-8b", gpu="h100", context_tokens=8192).max_concurrent_requests
    assert found["message"] == f"{fits} requests at 8K"
    assert found["schemaVersion"] == 1
    assert re.fullmatch(r"[0-9a-f]{6}", found["color"])
    assert found["requests"][published["contexts"].index(8192)] == fits
    assert published["contexts"] == sorted(published["contexts"])


def test_the_card_runs_no_script_but_its_own(tiny_site):
    page = read(tiny_site, "embed/index.html")
    assert "require-trusted-types-for 'script'" in page
    assert (tiny_site.folder / "assets/kv-embed.js").is_file()
    assert (tiny_site.folder / "assets/kv-embed.css").is_file()


def test_the_card_says_how_it_is_asked_for(tiny_site):
    page = read(tiny_site, "embed/index.html")
    asked = re.search(r'href="\?model=([\w.-]+)&amp;gpu=([\w.-]+)"', page)
    badges = json.loads(read(tiny_site, f"badge/{asked[1]}.json"))["gpus"]
    assert asked[2] in badges
    assert "&lt;iframe src=" in page
    assert f"embed/?model={asked[1]}&amp;gpu={asked[2]}" in page


READ_ONLY = ("const { outerHTML } = written;", "outerHTML: { get: () => outerHTML },")
"""Where a script of ours reads HTML, to answer the theme's comparison of two heads."""


def test_no_script_of_ours_writes_html(repository):
    for path in (repository / "docs/assets").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        for reading in READ_ONLY:
            text = text.replace(reading, "", 1)
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert word not in text, path


def test_every_page_has_a_markdown_twin(tiny_site):
    pages = [path for path in tiny_site.folder.glob("**/index.html") if "embed" not in path.parts]
    generated = [path for path in pages if path.with_suffix(".md").is_file()]
    assert len(generated) >= 15
    text = read(tiny_site, "models/meta-llama--Llama-3.1-8B-Instruct/index.md")
    assert text.startswith(
        "# Llama 3.1 8B\n\n<https://example.org/tiny/models/meta-llama--Llama-3.1-8B-Instruct/>"
    )
    assert re.search(r"^\|.*\|\n\|(---\|)+$", text, re.M)
    assert "](https://example.org/tiny/models/" in text
    assert "|H100 NVIDIA|" in text, "tables name pages and hold no addresses"
    for page in generated:
        twin = page.with_suffix(".md").read_text(encoding="utf-8")
        assert not re.search(r"<(?:div|span|table|script|svg|button)\b", twin), page


def test_llms_full_is_one_text(tiny_site):
    text = read(tiny_site, "llms-full.txt")
    assert "](https://example.org/tiny/models/meta-llama--Llama-3.1-8B-Instruct/index.md): " in text
    assert len(text.encode()) < 2_000_000


def test_headers_forbid_frames_but_for_the_card(tiny_site):
    """For every file of the site, what a host adds up from all rules that match its path."""
    rules = [block.splitlines() for block in read(tiny_site, "_headers").split("\n\n")]

    def stated(path: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for pattern, *lines in rules:
            if fnmatchcase(path, pattern):
                for line in lines:
                    name, _, value = line.strip().partition(": ")
                    found.setdefault(name, []).append(value)
        return found

    files = [f"/{path.relative_to(tiny_site.folder)}" for path in tiny_site.folder.rglob("*.html")]
    assert len(files) > 20
    for path in (*files, "/404.html", "/", "/no/such/page"):
        # A policy with frame-ancestors overrides X-Frame-Options; two of the same name would be joined.
        framed = stated(path).get("Content-Security-Policy", [])
        assert stated(path)["X-Frame-Options"] == ["DENY"], path
        assert framed == (["frame-ancestors *"] if path.startswith("/embed/") else []), path
    assert stated("/badge/a.json")["Access-Control-Allow-Origin"] == ["*"]


def test_the_feed_says_what_each_engine_release_changed(tiny_site):
    feed = ET.fromstring(read(tiny_site, "data/engine-releases.xml"))  # noqa: S314 - our own
    names = {"a": "http://www.w3.org/2005/Atom"}
    entries = feed.findall("a:entry", names)
    steps = json.loads(read(tiny_site, "data/engine-releases.json"))["changes"]
    assert len(entries) == len(steps) >= 5
    (last,) = [step for step in steps if step["to"] == "vllm"]
    from kvreport import estimate

    for one in last["models"]:
        for end, engine in (("old", last["from"]), ("new", last["to"])):
            answer = estimate(one["model"], gpu=last["gpu"], engine=engine, context_tokens=8192)
            assert one[end] == answer.max_concurrency


def test_a_link_to_any_page_shows_a_picture_that_there_is(tiny_site) -> None:
    seen = {}
    for path in tiny_site.folder.rglob("index.html"):
        html = path.read_text(encoding="utf-8")
        if '<meta name="kv-release"' in html:
            shown = re.search(r'<meta property="og:image" content="https://example.org/tiny/([^"]+)">', html)
            assert shown, path
            seen[path.parent.relative_to(tiny_site.folder).as_posix()] = shown[1]
    assert len(set(seen.values())) > 3
    assert seen["by-hand"] == seen["."]
    assert all((tiny_site.folder / address).read_bytes()[:2] == b"\xff\xd8" for address in set(seen.values()))
