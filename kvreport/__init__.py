"""kvreport: how many requests fit. Exact memory accounting for language-model serving.

>>> import kvreport
>>> answer = kvreport.estimate("Qwen/Qwen2.5-7B", gpu="h100-sxm-80gb", context_tokens=8192)
>>> answer.kv_bytes_per_token_per_gpu
57344
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "Estimate",
    "InputError",
    "Quantities",
    "TrafficAnswer",
    "__version__",
    "boundary",
    "diff",
    "estimate",
    "list_models",
    "load_catalog",
    "matrix",
    "quantities",
    "read_config",
    "read_log",
    "replay",
    "size",
    "size_home",
]

if TYPE_CHECKING:
    from kvreport.architectures import read_config
    from kvreport.book.quantities import Quantities, quantities
    from kvreport.catalog.load import load_catalog
    from kvreport.dataset.frames import boundary, diff, list_models, matrix
    from kvreport.errors import InputError
    from kvreport.estimation import Estimate, estimate
    from kvreport.estimation.home_size import size_home
    from kvreport.estimation.size import size
    from kvreport.startup_log.diagnose import read_log
    from kvreport.traffic.answers import TrafficAnswer, replay

_HOMES = {
    "Estimate": "kvreport.estimation",
    "InputError": "kvreport.errors",
    "Quantities": "kvreport.book.quantities",
    "TrafficAnswer": "kvreport.traffic.answers",
    "boundary": "kvreport.dataset.frames",
    "diff": "kvreport.dataset.frames",
    "estimate": "kvreport.estimation",
    "list_models": "kvreport.dataset.frames",
    "load_catalog": "kvreport.catalog.load",
    "matrix": "kvreport.dataset.frames",
    "quantities": "kvreport.book.quantities",
    "read_config": "kvreport.architectures",
    "read_log": "kvreport.startup_log.diagnose",
    "size": "kvreport.estimation.size",
    "size_home": "kvreport.estimation.home_size",
    "replay": "kvreport.traffic.answers",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import a public name when it is first used, so that ``import kvreport`` costs nothing."""
    if name == "load_catalogue":
        raise AttributeError("kvreport.load_catalogue is kvreport.load_catalog now")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name in ("pandas", "pyarrow"):
            from kvreport.errors import missing  # noqa: PLC0415

            raise ModuleNotFoundError(
                f"kvreport.{name}: {missing(error.name, 'data')}", name=error.name
            ) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
