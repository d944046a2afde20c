"""The check over the classes of transformers that generate nothing: embeddings, classifiers, bare models."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Final

from experiments.classes import ON_PURPOSE, compare
from experiments.completed import default_config
from experiments.vision_ops import import_torchvision
from kvreport.architectures.registry import is_read

KNOWN: Final = {
    "LongcatFlashModel": ON_PURPOSE["LongcatFlashForCausalLM"],
    "Qwen3ASRForTokenClassification": "its head has no bias, unlike every other classifier of tokens: 2 parameters",
}
"""Where the counts differ, and why."""


def classes() -> Iterator[tuple[str, str]]:
    """Yield model type and class of every class in transformers' lists that is read and generates nothing."""
    import_torchvision()
    import transformers
    from transformers.models.auto import modeling_auto

    seen = set()
    for listed in sorted(vars(modeling_auto)):
        mapping = getattr(modeling_auto, listed)
        if not listed.endswith("_MAPPING_NAMES") or not hasattr(mapping, "items"):
            continue
        for model_type, names in mapping.items():
            for name in (names,) if isinstance(names, str) else names:
                if (model_type, name) not in seen and hasattr(transformers, name) and is_read(name):
                    seen.add((model_type, name))
                    yield model_type, name


def check() -> int:
    """Compare each class of its own defaults; return 1 if one differs that is not known to."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    verdicts: Counter[str] = Counter()
    unknown = False
    for model_type, name in classes():
        try:
            model_type, config, _ = default_config(name, model_type)  # noqa: PLW2901 - what builds it
        except Exception as error:  # noqa: BLE001 - whatever a config class raises
            print(f"no config {name} {type(error).__name__}", flush=True)
            continue
        status, ours, theirs, note = compare(name, model_type, config)
        verdicts[status] += 1
        if status != "exact":
            print(f"{status:9} {name} {ours} {theirs} {KNOWN.get(name, note)[:100]}", flush=True)
        unknown |= status == "differs" and name not in (*KNOWN, *ON_PURPOSE)
    print(dict(verdicts))
    return int(unknown)
