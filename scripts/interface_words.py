"""Write every text of the interface into one file, to be read as a whole or translated.

    python scripts/interface_words.py interface.pot
    python scripts/interface_words.py --pseudo pseudo.po

The file is a template of gettext: each text once, with every place that uses it. It is made by the same walk that
puts translations in (`kvreport/translation/`), and it is published with the site as `downloads/interface.pot`.
A pseudo-language brackets and accents every text, so that what is not translated can be seen on the pages.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import yaml

from kvreport.translation import package, shared
from kvreport.translation.messages import Messages

ROOT = Path(__file__).resolve().parents[1]
ACCENTS = str.maketrans("aeiouAEIOUcn", "áéíóúÁÉÍÓÚçñ")
HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: de\\n"\n'
"""The pseudo-language passes as German, so that the theme's own words can be told from ours."""


def collect() -> Messages:
    """Return the messages of the package and of this site's own settings."""
    found = package.collect()
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), loader)  # noqa: S506 - a safe one

    def say(message: str, line: int) -> None:
        found.note("mkdocs.yml", message, line)

    shared.translate_settings(settings, say)
    return found


def pseudo(message: str) -> str:
    """Return a text in brackets with accents; placeholders, tags and code stay.

    >>> pseudo("{count} models on <a>pages</a>")
    '⟦{count} módéls óñ <a>págés</a>⟧'
    >>> pseudo("row|rows")
    '⟦rów⟧|⟦róws⟧'
    """
    if re.fullmatch(r"\w[\w ]*(?:\|\w[\w ]*)+", message):
        return "|".join(f"⟦{form.translate(ACCENTS)}⟧" for form in message.split("|"))
    parts = re.split(r"(<code\d*>.*?</code\d*>|\{\w+\}|<[^>]*>|&\w+;|--[\w-]+)", message)
    return f"⟦{''.join(one if n % 2 else one.translate(ACCENTS) for n, one in enumerate(parts))}⟧"


def main(arguments: list[str] | None = None) -> int:
    """Write the file and say how much is in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--pseudo", action="store_true", help="write a catalog that brackets every text")
    parser.add_argument("target", type=Path, help="file to write, such as interface.pot")
    asked = parser.parse_args(arguments)
    found = collect()
    text = found.template()
    if asked.pseudo:
        said = (f"msgid {_quoted(one)}\nmsgstr {_quoted(pseudo(one))}\n" for one in found.places)
        text = "\n".join([HEAD, *said])
    asked.target.write_text(text, encoding="utf-8")
    files = {place.rpartition(":")[0] for places in found.places.values() for place in places}
    print(f"{asked.target}: {len(found.places):,} texts of {len(files):,} files")
    return 0


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
