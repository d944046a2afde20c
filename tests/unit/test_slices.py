"""Slices of a device (multi-instance GPU) as devices of their own."""

import pytest

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.size import size
from kvreport.publish.page_data import gather
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import gpu_rows
from kvreport.units import GIB


@pytest.mark.parametrize(("name", "listed"), [("1g.10gb", 9.75), ("2g.20gb", 19.62), ("3g.40gb", 39.50)])
def test_a_slice_has_at_most_the_memory_that_the_driver_lists(
    catalog: Catalog, name: str, listed: float
) -> None:
    # nvidia-smi mig -lgip on an H100 80GB: 9.75, 19.62 and 39.50 GiB
    found = catalog.accelerator(f"h100-{name}")
    assert listed - 0.3 < found.usable_bytes / GIB <= listed


@pytest.mark.parametrize(
    "name",
    [
        "h100-sxm-80gb-1g.10gb",
        "H100:1g.10gb",
        "H100 MIG 1g.10gb",
        "h100/1g.10gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "H100 1g.10gb+me",
        "h100:mig-1g.10gb.me",
    ],
)
def test_a_slice_goes_by_several_names(catalog: Catalog, name: str) -> None:
    found = catalog.accelerator(name)
    assert (found.id, found.slice_of) == ("h100-sxm-80gb-1g.10gb", "h100-sxm-80gb")
    whole = catalog.accelerator("h100")
    assert found.bandwidth_bytes_per_s.value == whole.bandwidth_bytes_per_s.value // 8
    assert found.rates.bf16.value == whole.rates.bf16.value // 7


def test_a_model_is_served_on_a_slice() -> None:
    found = estimate("Qwen/Qwen2.5-3B-Instruct", gpu="h100:1g.20gb", context_tokens=8192)
    whole = estimate("Qwen/Qwen2.5-3B-Instruct", gpu="h100", context_tokens=8192)
    assert 0 < found.max_concurrent_requests < whole.max_concurrent_requests / 4


def test_slices_are_not_joined_and_unknown_ones_are_named(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"allowed: one, because slices have no link.*h100-sxm-80gb whole"):
        estimate("llama-3.1-8b", gpu="h100:1g.10gb", tensor_parallel=2)
    with pytest.raises(
        InputError, match=r"found slice '1g\.11gb' of h100-sxm-80gb; allowed: 1g\.10gb, 1g\.20gb"
    ):
        catalog.accelerator("h100:1g.11gb")
    with pytest.raises(InputError, match=r"it has no slices that are known"):
        catalog.accelerator("rtx-4090:1g.10gb")


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "1g.10gb", "MIG 1g.10gb", "mig-1g.10gb.me"])
def test_a_slice_without_its_device_names_the_devices(catalog: Catalog, name: str) -> None:
    with pytest.raises(
        InputError, match=r"a slice without its device; allowed: a100-.*h100-sxm-80gb.* have this"
    ):
        catalog.accelerator(name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        # What processes and drivers showed: PyTorch on an H100 NVL, nvidia-smi on a B200, a table of an H200.
        ("h100 nvl:1g.12gb", 10.75),
        ("b200:1g.23gb", 20992 / 1024),
        ("b200:2g.45gb", 44.25),
        ("h200:1g.18gb", 16.0),
        ("gh200:2g.24gb", 23.0),
        ("a30:1g.6gb", 5.81),
        ("rtx pro 6000:1g.24gb", 25.4e9 / GIB),
    ],
)
def test_a_slice_has_no_more_than_was_found_in_one(catalog: Catalog, name: str, found: float) -> None:
    usable = catalog.accelerator(name).usable_bytes / GIB
    assert found - 0.15 < usable <= found + 0.005


def test_a_share_that_no_driver_listed_is_at_most_the_smallest_that_was(catalog: Catalog) -> None:
    devices = [one for one in catalog.accelerators.values() if one.slices]
    listed = {
        (slice_.memory, slice_.usable / (one.usable_bytes * slice_.memory[0] / slice_.memory[1]))
        for one in devices
        for slice_ in one.slices
        if slice_.usable is not None and slice_.memory[1] == 8
    }
    least = min(share for (part, whole), share in listed if 4 * part <= whole)
    for one in devices:
        for slice_ in one.slices:
            if slice_.usable is None and slice_.memory in ((1, 8), (2, 8)):
                share = one.usable_bytes * slice_.memory[0] / slice_.memory[1]
                assert one.sliced(slice_.name).usable_bytes <= least * share * 1.001


@pytest.mark.parametrize("gpu", ["h100:2g.20gb", "h100-nvl-94gb:2g.24gb"])
def test_a_search_does_not_join_slices(gpu: str) -> None:
    # Two slices were joined by tensor parallelism, which `estimate` refuses.
    found = size("Qwen/Qwen3-8B", gpus=[gpu], context=8192, concurrent=4)
    told = found.to_dict()["deployments"]
    assert told
    assert {one["layout"]["gpus"] for one in told} == {1}


def test_every_slice_is_a_part_of_its_device(catalog: Catalog) -> None:
    for device in catalog.accelerators.values():
        for one in device.slices:
            assert one.memory[0] <= one.memory[1]
            assert one.instances * one.memory[0] <= one.memory[1]
            assert device.sliced(one.name).usable_bytes < device.usable_bytes


def test_the_page_lists_each_slice_with_the_largest_model_that_it_serves(catalog: Catalog) -> None:
    names = ("Qwen/Qwen3-8B", "Qwen/Qwen3-1.7B")
    site = gather(catalog, models=",".join(names), gpus="h100-sxm-80gb,rtx-4090", version="test")
    made = {gpu.id: gpu_page.context(site, gpu, gpu_rows.served(site))["slices"] for gpu in site.gpus}
    assert made["rtx-4090"] is None
    table = made["h100-sxm-80gb"]
    assert table is not None
    rows = {row.head.text: [cell.text for cell in row.cells] for row in table.rows}
    assert list(rows) == [f"h100-sxm-80gb:{one.name}" for one in catalog.accelerator("h100").slices]
    for name, (*_, model, requests) in rows.items():
        told = estimate(
            next(one for one in names if catalog.model(one).name == model),
            gpu=name,
            context_tokens=site.counted_context,
        )
        assert int(requests.replace(",", "")) == told.max_concurrent_requests > 0
    assert (rows["h100-sxm-80gb:1g.10gb"][4], rows["h100-sxm-80gb:2g.20gb"][4]) == ("Qwen3 1.7B", "Qwen3 8B")


@pytest.mark.parametrize(
    ("name", "device", "size"), [("NVIDIA A40-8Q", "A40", 8), ("GRID A100D-40C", "A100", 40)]
)
def test_a_virtual_gpu_is_refused_with_what_answers_for_it(name: str, device: str, size: int) -> None:
    """How much of its frame buffer the driver keeps is published by no source; its guest's driver lists what is left."""
    with pytest.raises(
        InputError, match=rf"a vGPU of {device} with {size} GiB .* --gpu {device} --memory SIZE"
    ):
        open_catalog().accelerator(name)


def test_a_gpu_page_lists_requests_on_each_slice_and_the_evidence_of_its_memory() -> None:
    """The numbers of a slice were on no page, and neither was whether a GPU's memory was measured."""
    models = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-3B-Instruct", "openai/gpt-oss-20b")
    site = gather(
        open_catalog(),
        models=",".join(models),
        gpus="h100-sxm-80gb,b300-sxm-288gb",
        version="t",
    )
    found = {}
    for gpu in site.gpus:
        names = gpu_page.context(site, gpu, gpu_rows.served(site))
        table = names["on_slices"]
        heads = [column.title for column in table.columns]
        assert [row.head.text for row in table.rows] == [
            model.name for model in sorted(site.models, key=lambda one: site.parameters[one.id])
        ]
        (usable,) = (fact for fact in names["facts"] if fact.label == "Usable by a process")
        found[gpu.id] = heads, table, usable.note, names["usable_note"]
    heads, table, note, _ = found["h100-sxm-80gb"]
    assert heads == ["1g.10gb", "1g.20gb, 2g.20gb", "3g.40gb, 4g.40gb", "7g.80gb"]
    for row in table.rows:
        (model,) = (one.id for one in site.models if one.name == row.head.text)
        for place, name in enumerate(("1g.10gb", "2g.20gb", "4g.40gb")):
            said = estimate(model, gpu=f"h100:{name}", context_tokens=site.counted_context)
            assert row.cells[place].value == said.max_concurrent_requests
    assert note == "observed: reported by a real machine"
    _, _, note, remark = found["b300-sxm-288gb"]
    assert note == "derived: computed from other facts"
    assert "does not name the chip" in remark
