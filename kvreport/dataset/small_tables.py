"""The small tables beside the matrix: one row per model, one row per accelerator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from kvreport.accounting.kv_cache import held
from kvreport.accounting.weights import active_parameters, parameters, weight_bytes
from kvreport.catalog.accelerator import Accelerator, Figure
from kvreport.catalog.base import Evidence, Source
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.model import Model
from kvreport.estimation.named import automatic_kv_format

_STRENGTH = {name: rank for rank, name in enumerate(get_args(Evidence))}
_DECISIVE = frozenset({"layers", "weights", "context_tokens"})


def model_rows(models: Iterable[Model], formats: Mapping[str, WeightFormat]) -> list[dict[str, Any]]:
    """Rows of ``models.csv``, by id."""
    return [_model_row(model, formats) for model in sorted(models, key=lambda model: model.id)]


def _model_row(model: Model, formats: Mapping[str, WeightFormat]) -> dict[str, Any]:
    need = held(model)
    kinds = dict.fromkeys(cache.kind for group in model.layers for cache in group.caches)
    return {
        "model": model.id,
        "name": model.name,
        "family": model.family,
        "maker": model.maker,
        "release": model.release,
        "licence": model.licence,
        "architecture": model.architecture,
        "context_tokens": model.context_tokens,
        "layers": model.layer_count,
        "cache_kinds": ", ".join(kinds),
        "parameters": parameters(model),
        "active_parameters": active_parameters(model),
        "weight_format": model.weight_format,
        "kv_format": automatic_kv_format(model),
        "released_weight_bytes": weight_bytes(model, None, formats),
        "kv_bytes_per_token_8k": round(float(need.marginal_bytes(8192))),
        "kv_bytes_per_token_long": round(float(need.marginal_bytes(model.context_tokens))),
        "state_bytes_per_request": need.state_bytes,
        "evidence": weakest(source.evidence for source in model.sources if _DECISIVE & set(source.covers)),
        **_first_source(model.sources),
    }


def accelerator_rows(accelerators: Iterable[Accelerator]) -> list[dict[str, Any]]:
    """Rows of ``accelerators.csv``, by slug."""
    return [_accelerator_row(device) for device in sorted(accelerators, key=lambda device: device.id)]


def _accelerator_row(device: Accelerator) -> dict[str, Any]:
    memory, rates = device.memory, device.rates
    known = [rate for rate in (rates.bf16, rates.fp8) if rate is not None]
    return {
        "gpu": device.id,
        "name": device.name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "form_factor": device.form_factor,
        "compute_capability": device.compute_capability,
        "release": device.release,
        "advertised_bytes": memory.advertised.value,
        "advertised_evidence": memory.advertised.evidence,
        "driver_visible_bytes": _value(memory.driver_visible),
        "driver_visible_evidence": _evidence(memory.driver_visible),
        "usable_bytes": memory.usable.value,
        "usable_evidence": memory.usable.evidence,
        "memory_type": device.memory_type,
        "bandwidth_bytes_per_s": _value(device.bandwidth_bytes_per_s),
        "bandwidth_evidence": _evidence(device.bandwidth_bytes_per_s),
        "bf16_flops_per_s": _value(rates.bf16),
        "fp8_flops_per_s": _value(rates.fp8),
        "rates_evidence": weakest(rate.evidence for rate in known) if known else None,
        **_first_source(device.sources),
    }


def weakest(evidence: Iterable[Evidence]) -> Evidence:
    """The weakest of several pieces of evidence."""
    return max(evidence, key=_STRENGTH.__getitem__)


def _value(figure: Figure | None) -> int | None:
    return None if figure is None else figure.value


def _evidence(figure: Figure | None) -> str | None:
    return None if figure is None else figure.evidence


def _first_source(sources: tuple[Source, ...]) -> dict[str, str | None]:
    return {"source": sources[0].title, "source_url": sources[0].url}
