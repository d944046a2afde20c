"""A catalog of any size for growth measurements: the public one, its models copied under other names."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

SEED = 20261121


def grow(source: Path, target: Path, factor: int, every: int = 1) -> int:
    """Copy a catalog and give it ``factor`` times the models, or times one model in ``every``.

    A copy differs from its original in id, name and aliases, and in the number of its vocabulary,
    drawn from a seeded generator, so that nothing that is kept by content is found twice.

    Returns:
        The number of models.
    """
    shutil.copytree(source, target, dirs_exist_ok=True)
    draw = random.Random(SEED)  # noqa: S311 - names, not secrets
    originals = sorted((source / "models").glob("*.yaml"))
    # A quantized copy is counted from its original, which stays with it.
    needed = {path.name for path in originals[::every]}
    for path in originals[::every]:
        of = re.search(r"(?m)^quantized_from: [\"']?([^\"'\n]+)", path.read_text(encoding="utf-8"))
        needed |= {of[1].replace("/", "--") + ".yaml"} if of else set()
    for left_out in originals:
        if left_out.name not in needed:
            (target / "models" / left_out.name).unlink()
    originals = [path for path in originals if path.name in needed]
    for copy in range(1, factor):
        for path in originals:
            text = path.read_text(encoding="utf-8")
            organisation, _, name = path.stem.partition("--")
            text = re.sub(r"(?m)^id: .*$", f"id: {organisation}/{name}-copy{copy}", text, count=1)
            text = re.sub(r"(?m)^name: (.*)$", _renamed(copy), text, count=1)
            text = re.sub(r"(?m)^(aliases|predecessor_ids): .*\n", "", text)
            text = re.sub(r"(?m)^vocabulary: (\d+)$", _changed(draw), text, count=1)
            (target / "models" / f"{path.stem}-copy{copy}.yaml").write_text(text, encoding="utf-8")
    return len(originals) * factor


def _renamed(copy: int):
    def rename(match: re.Match[str]) -> str:
        name = match[1].strip('"')
        return f'name: "{name} copy {copy}"'

    return rename


def _changed(draw: random.Random):
    def change(match: re.Match[str]) -> str:
        # Fewer, because a vocabulary may not have more tokens than the embedding has rows.
        return f"vocabulary: {int(match[1]) - draw.randrange(1, 64)}"

    return change
