"""Every column of every published table, described once.

The dictionary page, ``datapackage.json``, ``croissant.json``, the Arrow schemas and the checks of
what is written all come from here. A column that is not described cannot be published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kvreport.accounting.capacity import Limit, Verdict

ColumnType = Literal["string", "int16", "int64", "float32", "float64", "boolean"]

VERDICTS: Final = tuple(verdict.label for verdict in Verdict)
"""Every verdict, from best to worst."""

LIMITS: Final = tuple(limit.label for limit in Limit)
"""What can keep one more request from running at once."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Name in every file.
        type: Storage type.
        meaning: What the value says, for a reader of the dictionary.
        unit: Unit of the value, or "" for names and flags.
        formula: How it is computed, or where it is read, in words.
        key: True if it is part of the table's primary key.
        nullable: True if it can be empty, which then means unknown.
        minimum: Smallest value allowed, for numbers.
        values: All values allowed, for an enumeration.
    """

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    formula: str = ""
    key: bool = False
    nullable: bool = False
    minimum: int | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One published table.

    Attributes:
        name: Stem of its files.
        title: What people call it.
        description: What one row is, and what is left out.
        columns: Its columns, keys first.
    """

    name: str
    title: str
    description: str
    columns: tuple[Column, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns that identify a row."""
        return tuple(column.name for column in self.columns if column.key)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in file order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return the column of that name.

        Raises:
            KeyError: There is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


CAPACITY: Final = Table(
    name="capacity",
    title="Capacity matrix",
    description=(
        "One row for each model x accelerator x engine x layout x weight format x KV format x "
        "context. A combination whose memory does not suffice is a row with its verdict. What "
        "cannot be configured has no row: heads that do not divide by the tensor-parallel size, a KV format "
        "that cannot be stored, a model that the engine lacks. Bytes are per GPU (device), the fullest "
        "one. Requests are of the whole deployment, with the defaults of the engine."
    ),
    columns=(
        Column("model", "string", "Model id, as on the hub it was published on.", key=True),
        Column("gpu", "string", "Accelerator slug, as in accelerators.csv.", key=True),
        Column("engine", "string", "Engine whose rules and defaults apply, by its name here.", key=True),
        Column(
            "layout",
            "string",
            "How the model is spread over devices, in short: `tp8`, `dp8-ep` (data-parallel attention with "
            "expert parallelism), `tp8-dcp8` (decode context parallelism), `pp2-tp8` (pipeline stages).",
            key=True,
        ),
        Column(
            "tensor_parallel",
            "int16",
            "Devices that share each layer.",
            unit="devices",
            key=True,
            minimum=1,
        ),
        Column(
            "data_parallel",
            "int16",
            "Data ranks, each with requests and a KV pool of its own.",
            unit="ranks",
            key=True,
            minimum=1,
        ),
        Column(
            "pipeline_parallel", "int16", "Stages that share the layers.", unit="stages", key=True, minimum=1
        ),
        Column(
            "expert_parallel",
            "boolean",
            "Whether routed experts are divided whole over all tensor x data ranks.",
            key=True,
        ),
        Column(
            "decode_context_parallel",
            "int16",
            "Ranks that share the tokens of a request while decoding.",
            unit="ranks",
            key=True,
            minimum=1,
        ),
        Column(
            "weight_format",
            "string",
            "Storage format of the weights; `released` is the published checkpoint as it is.",
            key=True,
        ),
        Column(
            "kv_format",
            "string",
            "Storage format of the cache's keys, values and latents. States, index keys and compressor "
            "rings keep the precision that their architecture gives them.",
            key=True,
        ),
        Column(
            "context_tokens",
            "int64",
            "Tokens of every request, prompt and answer together.",
            unit="tokens",
            key=True,
            minimum=1,
        ),
        Column(
            "weight_bytes_per_gpu",
            "int64",
            "Weights resident on one device, scales included.",
            unit="bytes",
            formula="Sum over tensors of elements x bits / 8 + scales, divided or replicated by the "
            "tensor-parallel layout.",
            minimum=0,
        ),
        Column(
            "kv_bytes_per_token_per_gpu",
            "int64",
            "Bytes that one more token adds at this context, before any block rounding.",
            unit="bytes",
            formula="Sum over layers that still grow at this context of KV heads per device x "
            "(key width + value width) x bytes per element, or of the latent and index widths.",
            minimum=0,
        ),
        Column(
            "state_bytes_per_request_per_gpu",
            "int64",
            "Bytes that one request holds whatever its length: recurrent states, image tokens, and "
            "DeepSeek-V4's compressor rings and short windows. Windows of ordinary attention are cache.",
            unit="bytes",
            formula="Sum over layers of state and convolution tensors at their own precision, of rings "
            "and of windows next to compressed latents.",
            minimum=0,
        ),
        Column(
            "kv_bytes_per_request_per_gpu",
            "int64",
            "Everything that one request of this context reserves, as the engine rounds it to blocks.",
            unit="bytes",
            formula="Blocks per request x bytes per block.",
            minimum=0,
        ),
        Column(
            "kv_pool_bytes_per_gpu",
            "int64",
            "Memory left for the cache by a server that is told this context as its longest request; 0 where the weights "
            "and the reserve leave nothing.",
            unit="bytes",
            formula="Usable memory x utilization - weights - activation peak - non-framework memory - "
            "graphs, not below 0.",
            minimum=0,
        ),
        Column(
            "max_concurrent_requests",
            "int64",
            "Whole requests of this context that the engine runs at once; 0 where it does not start.",
            unit="requests",
            formula="The smaller of max_concurrent_requests_by_memory and the engine's max_num_seqs, on every "
            "data rank.",
            minimum=0,
        ),
        Column(
            "max_concurrent_requests_by_memory",
            "int64",
            "Whole requests of this context that the engine's pool holds at once; empty where a request holds no "
            "cache (embedding models), so that memory limits nothing.",
            unit="requests",
            nullable=True,
            formula="Blocks in the pool / blocks per request, rounded down, times the data ranks.",
            minimum=0,
        ),
        Column(
            "max_concurrent_requests_ceiling",
            "int64",
            "Whole requests if all usable memory but the weights held cache and nothing were rounded: "
            "no engine reaches it. Empty where a request holds no cache.",
            unit="requests",
            nullable=True,
            formula="(Usable memory - weights) / bytes held by one request, rounded down.",
            minimum=0,
        ),
        Column(
            "max_context_tokens",
            "int64",
            "The longest single request whose cache fits the engine's pool, up to the model's limit.",
            unit="tokens",
            formula="Largest n whose reserved bytes fit the pool of a server that is told n.",
            minimum=0,
        ),
        Column(
            "limited_by",
            "string",
            "What keeps one more request from running: `kv_pool`, `max_num_seqs` (the engine's limit of "
            "sequences), `state_slots` (blocks for recurrent states) or `context` (the model's limit).",
            formula="The smallest of the limits.",
            values=LIMITS,
        ),
        Column(
            "shortfall_bytes_per_gpu",
            "int64",
            "Bytes that the pool lacks for one request of this context, and for its states at start; 0 where "
            "it fits.",
            unit="bytes",
            formula="Bytes reserved by one request and the blocks that the engine keeps - the pool, not below 0.",
            minimum=0,
        ),
        Column(
            "verdict",
            "string",
            "Whether this combination serves. `fits`: it does. `tight`: it fits by less than the uncertainty of the "
            "estimate. `may_fit`: it is short by less than that. `max_seqs_exceeds_states`: the engine needs a "
            "block for the states of every sequence. The others are `cache_exceeds_pool`, "
            "`weights_exceed_memory`, `context_exceeds_model`, `format_not_supported` and `engine_does_not_run`.",
            formula="The last of this list that applies.",
            values=VERDICTS,
        ),
        Column(
            "decode_ms_lower_bound",
            "float32",
            "Least time of one decoding step with max_concurrent_requests requests of this context; "
            "empty where nothing fits or the accelerator's bandwidth is unknown.",
            unit="milliseconds",
            formula="The larger of bytes read / memory bandwidth and operations / peak rate.",
            nullable=True,
            minimum=0,
        ),
        Column(
            "prefill_ms_lower_bound",
            "float32",
            "Least time to read one prompt of this context; empty where it does not fit or the "
            "accelerator's rate is unknown.",
            unit="milliseconds",
            formula="The larger of operations / peak rate and bytes read / memory bandwidth.",
            nullable=True,
            minimum=0,
        ),
    ),
)

MODELS: Final = Table(
    name="models",
    title="Models",
    description="One row for each model of the catalog.",
    columns=(
        Column("model", "string", "Model id, as on the hub it was published on.", key=True),
        Column("name", "string", "What people call it."),
        Column("family", "string", "Family of models it belongs to."),
        Column("maker", "string", "Who made it."),
        Column("release", "string", "Year and month of its publication.", unit="YYYY-MM", nullable=True),
        Column("licence", "string", "License of its weights.", nullable=True),
        Column("architecture", "string", "Class that its config.json names."),
        Column("context_tokens", "int64", "Longest context its maker supports.", unit="tokens", minimum=1),
        Column("layers", "int64", "Number of layers.", unit="layers", minimum=1),
        Column("cache_kinds", "string", "Cache kinds of its layers, comma separated; empty if none."),
        Column(
            "parameters",
            "int64",
            "Parameters of the published checkpoint that an engine loads.",
            unit="parameters",
            minimum=1,
        ),
        Column(
            "active_parameters",
            "int64",
            "Parameters that one token reads: all, less routed experts that it does not use and tables it looks up.",
            unit="parameters",
            minimum=1,
        ),
        Column("weight_format", "string", "Format of the published checkpoint."),
        Column("kv_format", "string", "KV format that `auto` means for it."),
        Column(
            "released_weight_bytes",
            "int64",
            "Weights as released on one device without tensor parallelism.",
            unit="bytes",
            minimum=0,
        ),
        Column(
            "kv_bytes_per_token_8k",
            "int64",
            "Bytes that one more token adds at 8,192 tokens, 16-bit cache, one device.",
            unit="bytes",
            minimum=0,
        ),
        Column(
            "kv_bytes_per_token_long",
            "int64",
            "The same at the model's longest context, past every window.",
            unit="bytes",
            minimum=0,
        ),
        Column(
            "state_bytes_per_request",
            "int64",
            "Bytes of constant state per request, one device.",
            unit="bytes",
            minimum=0,
        ),
        Column("evidence", "string", "Weakest evidence of the fields that decide its bytes."),
        Column("source", "string", "Title of its first source."),
        Column("source_url", "string", "Address of its first source.", nullable=True),
    ),
)

ACCELERATORS: Final = Table(
    name="accelerators",
    title="Accelerators",
    description="One row for each accelerator of the catalog, as one device that software sees.",
    columns=(
        Column("gpu", "string", "Slug, the name on the command line.", key=True),
        Column("name", "string", "What its maker calls it."),
        Column("vendor", "string", "Who makes it."),
        Column("architecture", "string", "Architecture's name.", nullable=True),
        Column("form_factor", "string", "SXM, PCIe, OAM and the like.", nullable=True),
        Column("compute_capability", "string", "CUDA capability or gfx name.", nullable=True),
        Column("release", "string", "Year and month of its launch.", unit="YYYY-MM", nullable=True),
        Column("advertised_bytes", "int64", "Memory on the label.", unit="bytes", minimum=1),
        Column("advertised_evidence", "string", "Evidence for advertised_bytes."),
        Column(
            "driver_visible_bytes",
            "int64",
            "Memory that the driver reports as total.",
            unit="bytes",
            nullable=True,
            minimum=1,
        ),
        Column("driver_visible_evidence", "string", "Evidence for driver_visible_bytes.", nullable=True),
        Column(
            "usable_bytes",
            "int64",
            "Memory that a process can use: what an engine's utilization multiplies.",
            unit="bytes",
            minimum=1,
        ),
        Column("usable_evidence", "string", "Evidence for usable_bytes."),
        Column("memory_type", "string", "HBM3, GDDR6 and the like.", nullable=True),
        Column(
            "bandwidth_bytes_per_s",
            "int64",
            "Memory bandwidth by the data sheet.",
            unit="bytes per second",
            nullable=True,
            minimum=1,
        ),
        Column("bandwidth_evidence", "string", "Evidence for bandwidth_bytes_per_s.", nullable=True),
        Column(
            "bf16_flops_per_s",
            "int64",
            "Dense 16-bit peak rate by the data sheet.",
            unit="operations per second",
            nullable=True,
            minimum=1,
        ),
        Column(
            "fp8_flops_per_s",
            "int64",
            "Dense FP8 peak rate by the data sheet.",
            unit="operations per second",
            nullable=True,
            minimum=1,
        ),
        Column("rates_evidence", "string", "Weakest evidence of the rates.", nullable=True),
        Column("source", "string", "Title of its first source."),
        Column("source_url", "string", "Address of its first source.", nullable=True),
    ),
)

TABLES: Final = (CAPACITY, MODELS, ACCELERATORS)
