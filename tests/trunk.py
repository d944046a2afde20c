"""Short ways into the trunk for tests that look at one part of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvreport.accounting.allocation import plan_blocks
from kvreport.accounting.budget import Budget
from kvreport.accounting.case import Case, Launch
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.step import Loading
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model


def case(model: Model, engine: Engine, **fields: Any) -> Case:
    """A case; ``accelerator`` (or ``accelerators``), ``tensor_parallel`` and ``context_parallel`` may be left out."""
    layout = Layout(tensor=fields.pop("tensor_parallel", 1), decode_context=fields.pop("context_parallel", 1))
    fields.setdefault("formats", {})
    fields.setdefault("serving", Serving(max_batched_tokens=1))
    accelerator = fields.pop("accelerator", None)
    fields.setdefault("accelerators", () if accelerator is None else (accelerator,))
    return Case(model=model, engine=engine, layout=layout, **fields)


def launch(catalog: Catalog, engine: Engine | str, **told: Any) -> Launch:
    """How an engine is started, with the catalog's rules of what its releases run on."""
    return Launch(
        engine=catalog.engine(engine) if isinstance(engine, str) else engine,
        formats=catalog.weight_formats,
        serving=Serving(max_batched_tokens=1),
        support=catalog.support,
        **told,
    )


def plan(model: Model, engine: Engine, **fields: Any) -> BlockPlan:
    """An engine's block plan."""
    return plan_blocks(case(model, engine, **fields))


def budget(model: Model, engine: Engine, accelerator: Accelerator, **fields: Any) -> Budget:
    """The budget of one device; scheduler sizes are the engine's defaults where not given."""
    tokens, rows = rules(engine).scheduler(
        accelerator,
        max_batched_tokens=fields.pop("max_batched_tokens", None),
        max_seqs=fields.pop("max_seqs", None),
    )
    serving = Serving(max_batched_tokens=tokens, max_seqs=rows)
    return lay_out(case(model, engine, accelerator=accelerator, serving=serving, **fields)).budget


def load_overhead(
    model: Model,
    engine: Engine,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    accelerator: Accelerator,
    tensor_parallel: int = 1,
) -> dict[str, int]:
    """What loading adds, by what it is for."""
    layout = Layout(tensor=tensor_parallel)
    return rules(engine).load_overhead(Loading(model, engine, weight_format, formats, accelerator, layout))
