"""The accelerators of the catalog: three sizes of memory kept apart, each figure with its evidence."""

from collections.abc import Iterator

import pytest
from record_files import each

from kvreport.catalog.accelerator import Accelerator, Figure, Memory
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.resources import data_dir
from kvreport.units import GIB, MIB

CATALOG = open_catalog()
ALL = list(CATALOG.accelerators.values())


def figures(record: Accelerator) -> Iterator[tuple[str, Figure]]:
    for name, part in (("memory", record.memory), ("rates", record.rates), ("", record)):
        for field in type(part).model_fields:
            value = getattr(part, field)
            if isinstance(value, Figure):
                yield f"{name}.{field}".lstrip("."), value


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CATALOG


def test_there_are_at_least_ninety() -> None:
    assert len(ALL) >= 90


def test_a_file_is_named_after_its_record() -> None:
    stems = {path.stem for path in (data_dir() / "accelerators").glob("*.yaml")}
    assert stems == {record.id for record in ALL}


def test_no_two_names_mean_different_devices() -> None:
    seen: dict[str, str] = {}
    for record in ALL:
        for name in {record.id.lower(), record.name.lower(), *(a.lower() for a in record.aliases)}:
            assert seen.setdefault(name, record.id) == record.id, name


@each(lambda: ALL)
def test_every_figure_says_where_it_is_from(record: Accelerator) -> None:
    titles = {source.title for source in record.sources}
    for name, figure in figures(record):
        assert figure.source or figure.note, name
        if figure.evidence == "observed":
            assert figure.quote, f"{name}: what was observed?"
        if figure.evidence == "derived":
            assert figure.note or "halved" in (figure.source or ""), f"{name}: derived how?"
        assert any(name in source.covers for source in record.sources), f"{name}: {titles}"


@each(lambda: ALL)
def test_every_plain_fact_is_covered_by_a_source(record: Accelerator) -> None:
    covered = {field for source in record.sources for field in source.covers}
    for field in ("release", "form_factor", "memory_type", "pcie", "devices_per_node"):
        assert getattr(record, field) is None or field in covered, field


@each(lambda: ALL)
def test_sizes_stand_in_order(record: Accelerator) -> None:
    memory = record.memory
    # A label is rounded: TPU v5p says 95 and its compiler finds 95.74.
    assert memory.usable.value <= memory.advertised.value * 1.01
    if memory.driver_visible is not None:
        assert memory.usable.value <= memory.driver_visible.value <= memory.advertised.value
        assert memory.usable.value > 0.95 * memory.driver_visible.value
    assert memory.usable.value >= 0.45 * memory.advertised.value


@each(lambda: ALL)
def test_a_narrower_type_is_never_slower_unless_a_note_says_so(record: Accelerator) -> None:
    rates = record.rates
    if rates.bf16 and rates.fp8:
        assert rates.fp8.value >= rates.bf16.value
    if rates.fp8 and rates.fp4:
        assert rates.fp4.value >= rates.fp8.value


@pytest.mark.parametrize(
    ("alias", "slug"),
    [
        ("H100", "h100-sxm-80gb"),
        ("h100-sxm-80gb", "h100-sxm-80gb"),
        ("A100", "a100-sxm4-80gb"),
        ("a100-sxm-80gb", "a100-sxm4-80gb"),
        ("H200", "h200-sxm-141gb"),
        ("b200", "b200-sxm-180gb"),
        ("L40S", "l40s"),
        ("4090", "rtx-4090"),
        ("MI300X", "mi300x"),
        # As drivers print them.
        ("NVIDIA A800-SXM4-80GB", "a800-sxm4-80gb"),
        ("NVIDIA A800 80GB PCIe", "a800-pcie-80gb"),
        ("NVIDIA A800 40GB Active", "a800-pcie-40gb"),
        ("NVIDIA H800 PCIe", "h800-pcie-80gb"),
        ("NVIDIA RTX 6000D", "rtx-6000d-84gb"),
        ("NVIDIA RTX 5880 Ada Generation", "rtx-5880-ada"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("AMD Instinct MI308X", "mi308x"),
    ],
)
def test_usual_names_find_the_usual_device(catalog: Catalog, alias: str, slug: str) -> None:
    assert catalog.accelerator(alias).id == slug


def test_an_h100_shows_less_than_its_label(catalog: Catalog) -> None:
    memory = catalog.accelerator("H100").memory
    assert memory.advertised_label == "80 GB"
    assert memory.advertised.value == 80 * GIB
    # nvidia-smi: 81559 MiB (https://github.com/ModelCloud/GPTQModel/issues/2898).
    assert memory.driver_visible is not None
    assert memory.driver_visible.value == 81_559 * MIB
    # PyTorch: 79.11 GiB (https://github.com/vllm-project/vllm/issues/27508).
    assert memory.usable.value == round(79.11 * GIB)


def test_a_card_that_shows_two_devices_is_described_as_one_of_them(catalog: Catalog) -> None:
    half = catalog.accelerator("mi250x")
    assert half.devices_per_package == 2
    assert half.memory.advertised.value == 64 * GIB
    assert half.memory.advertised_label == "128 GB"


def test_usable_memory_above_what_the_driver_shows_is_refused() -> None:
    figure = {"evidence": "observed", "source": "a log", "quote": "x"}
    record = ALL[0].model_dump()
    record["memory"] = Memory(
        advertised=Figure(value=10, **figure),
        advertised_unit="GB",
        driver_visible=Figure(value=8, **figure),
        usable=Figure(value=9, **figure),
    ).model_dump()
    with pytest.raises(ValueError, match="usable cannot be larger than driver_visible"):
        Accelerator.model_validate(record)


def test_a_figure_without_any_origin_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 'source'"):
        Figure(value=1, evidence="observed")


def test_a_variant_for_export_has_the_memory_of_its_sibling_and_slower_links(catalog: Catalog) -> None:
    for variant, sibling in (("a800-sxm4-80gb", "a100-sxm4-80gb"), ("a800-pcie-80gb", "a100-pcie-80gb")):
        slow, fast = catalog.accelerator(variant), catalog.accelerator(sibling)
        assert slow.usable_bytes == fast.usable_bytes
        assert slow.slices == fast.slices
        assert slow.interconnect_bytes_per_s is not None
        assert fast.interconnect_bytes_per_s is not None
        assert slow.interconnect_bytes_per_s.value < fast.interconnect_bytes_per_s.value
