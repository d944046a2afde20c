"""``kvreport gpu``: what drivers' tools list becomes a record of a catalog of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.driver_report import MAX_BYTES, records
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.cli import main
from kvreport.errors import CatalogError, InputError

MIB, GIB = 1 << 20, 1 << 30

GPU = """<gpu id="00000000:01:00.0"><product_name>{name}</product_name>
<product_architecture>Ada Lovelace</product_architecture>
<fb_memory_usage><total>{total}</total><reserved>481 MiB</reserved><used>1 MiB</used></fb_memory_usage>
<pci><pci_gpu_link_info><pcie_gen><max_link_gen>4</max_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width></link_widths></pci_gpu_link_info></pci>
<gpu_power_readings><default_power_limit>450.00 W</default_power_limit></gpu_power_readings>{mig}</gpu>"""


def xml(*gpus: tuple[str, str], mig: str = "") -> str:
    listed = "".join(GPU.format(name=name, total=total, mig=mig) for name, total in gpus)
    doctype = '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">'
    return f'<?xml version="1.0" ?>\n{doctype}\n<nvidia_smi_log>{listed}</nvidia_smi_log>'


AMD = json.dumps(
    {
        "card0": {
            "Card Series": "AMD Instinct MI300X",
            "GFX Version": "gfx942",
            "VRAM Total Memory (B)": "206141652992",
        },
        "system": {"Driver version": "6.8.5"},
    }
)
APPLE = json.dumps(
    {
        "SPDisplaysDataType": [{"sppci_model": "Apple M4 Max"}],
        "SPHardwareDataType": [{"physical_memory": "128 GB"}],
    }
)
INTEL = json.dumps(
    {
        "device_list": [
            {"device_name": "Intel(R) Arc(TM) Pro B60 Graphics", "memory_physical_size_byte": 24 * GIB}
        ]
    }
)
SMI = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
    "limit": {"max_power": {"value": 750, "unit": "W"}},
}
AMD_SMI = json.dumps(
    {"gpu_data": [SMI | {"vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}}}]}
)
SAMPLES = [xml(("NVIDIA GeForce RTX 4090", "24564 MiB")), AMD, APPLE, INTEL, AMD_SMI]


@pytest.mark.parametrize(
    ("text", "id_", "total", "usable"),
    [
        # The total that a process finds on an RTX 4090 is 24,081 MiB by its record's log: the driver's less its reserve.
        (SAMPLES[0], "rtx-4090", 24_564 * MIB, 24_083 * MIB),
        (xml(("NVIDIA GeForce RTX 4090", "49140 MiB")), "rtx-4090-48gb", 49_140 * MIB, 48_659 * MIB),
        (AMD, "mi300x", 206_141_652_992, 206_141_652_992),
        (AMD_SMI, "mi300x", 196_592 * MIB, 196_592 * MIB),
        (
            json.dumps([SMI | {"mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}}}]),
            "mi300x",
            196_592 * MIB,
            196_592 * MIB,
        ),
        (json.dumps([SMI | {"vram": {"size": "196592 MB"}}]), "mi300x", 196_592 * MIB, 196_592 * MIB),
        (
            json.dumps({"devices": [{"device_name": "Arc Pro B60", "memory_physical_size": "24576.00"}]}),
            "arc-pro-b60",
            24 * GIB,
            int(24 * GIB * 0.944),
        ),
        (APPLE, "m4-max-128", 128 * GIB, 110_100 * MIB),
        (INTEL, "arc-pro-b60", 24 * GIB, int(24 * GIB * 0.944)),
    ],
)
def test_a_known_device_keeps_the_figures_that_no_tool_prints(
    catalog: Catalog, text: str, id_: str, total: int, usable: int
) -> None:
    (found,) = records(text, catalog)
    assert (found.id, found.memory.usable.value) == (id_, usable)
    assert found.memory.driver_visible is not None
    assert found.memory.driver_visible.value == total
    assert found.bandwidth_bytes_per_s is not None


def test_a_device_without_a_record_says_what_is_not_known(catalog: Catalog) -> None:
    name = "NVIDIA RTX PRO 9000 Next"
    (found,) = records(xml((name, "131072 MiB"), (name, "131072 MiB")), catalog)
    assert (found.id, found.name, found.architecture) == ("nvidia-rtx-pro-9000-next", name, "Ada Lovelace")
    assert (found.devices_per_node, found.pcie) == (2, "Gen4 x16")
    assert found.power_watts is not None
    assert found.power_watts.value == 450
    assert found.bandwidth_bytes_per_s is None
    assert "memory bandwidth, compute rates" in found.notes[0]


def test_unequal_devices_are_records_each_and_slices_are_said(catalog: Catalog) -> None:
    mig = "<mig_devices><mig_device><index>0</index></mig_device></mig_devices>"
    found = records(xml(("NVIDIA H100 80GB HBM3", "81559 MiB"), ("NVIDIA L4", "23034 MiB"), mig=mig), catalog)
    assert [one.id for one in found] == ["h100-sxm-80gb", "l4"]
    assert "MIG is on: 1 devices" in found[0].notes[-1]


@pytest.mark.parametrize("text", [*SAMPLES, xml(("Some Card: of 'ours' #1", "8192 MiB"))])
def test_what_is_printed_is_a_record_of_a_catalog_of_ones_own(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], catalog: Catalog
) -> None:
    (tmp_path / "listed").write_text(text, encoding="utf-8")
    assert main(["gpu", str(tmp_path / "listed")]) == 0
    (expected,) = records(text, catalog)
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators" / f"{expected.id}.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert Catalog(tmp_path).accelerator(expected.id) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither XML nor JSON"),
        ("{}", "no device"),
        ("[]", "no device"),
        ("3", "no object"),
        (json.dumps([SMI]), "no memory of 'AMD Instinct MI300X'.*static --vram"),
        (json.dumps({"device_list": [{"device_name": "Intel(R) Arc(TM) A770"}]}), "no memory of .*with -d 0"),
        ("<nvidia_smi_log>", "cannot be read"),
        ("[" * 100_000, "neither XML nor JSON"),
        ('<!DOCTYPE a [<!ENTITY a "b">]><a>&a;</a>', "entity"),
        ("<a>" + " " * MAX_BYTES, "more than 4,194,304 characters"),
        (xml(("NVIDIA GB10", "N/A")), "--memory"),
        (xml(("", "8192 MiB")), "without a name"),
        (xml(("NVIDIA L4", "400 MiB")), "not reserved"),
        (json.dumps({"SPDisplaysDataType": [{"sppci_model": "Apple M4 Max"}]}), "SPHardwareDataType"),
    ],
)
def test_other_text_is_refused_with_what_is_read(catalog: Catalog, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        records(text, catalog)


@given(st.sampled_from(SAMPLES), st.integers(0, 600), st.integers(0, 40), st.text(max_size=20))
def test_changed_output_is_a_record_or_one_error(text: str, at: int, gone: int, put: str) -> None:
    try:
        found = records(text[:at] + put + text[at + gone :], open_catalog())
    except (InputError, CatalogError):
        return
    assert all(isinstance(one, Accelerator) and one.memory.usable.value > 0 for one in found)
