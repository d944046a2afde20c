"""A pasted log, answered as the command answers it: what the log page runs in the reader's browser on a click."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.errors import InputError
from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.lines import lines
from kvreport.startup_log.llama_cpp import looks_like_llama_cpp
from kvreport.startup_log.local import diagnose_local
from kvreport.startup_log.reading import MAX_CHARACTERS


def answer(given: Mapping[str, str], catalog: Catalog | None = None) -> str:
    """Return the lines that ``kvreport log`` prints, as ``{"result": [...]}``, or ``{"error": sentence}``.

    Args:
        given: ``log``, and ``model`` and ``gpu`` where the reader named them; ``gpu`` may join unequal ones with ``+``.
        catalog: Where names are looked up; None for the packed one.
    """
    known = open_catalog() if catalog is None else catalog
    text, model = given["log"], given.get("model") or None
    gpus = [part.strip() for part in (given.get("gpu") or "").split("+") if part.strip()]
    try:
        if looks_like_llama_cpp(text):
            told = list(diagnose_local(text[:MAX_CHARACTERS], model=model, catalog=known).lines())
        else:
            told = lines(diagnose(text, model=model, gpu=gpus or None, catalog=known))
    except InputError as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"result": told})
