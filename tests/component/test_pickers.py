"""Fields with a list: what is typed whole comes first, then what has fewest other words."""

from __future__ import annotations

import pytest
from page_states import run

from kvreport import resources

RUN = """
const { items, query } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(kvreport.narrowed(items.map(kvreport.itemOf), query).map((one) => one.id)));
"""

GPUS = [
    ["h100-nvl-94gb", "H100 NVL 94GB", "NVIDIA", "2023-03", 0, ["H100-NVL", "H100 NVL"]],
    ["h100-pcie-80gb", "H100 PCIe 80GB", "NVIDIA", "2022-10", 0, ["H100-PCIe"]],
    ["h100-sxm-80gb", "H100 80GB HBM3 (SXM5)", "NVIDIA", "2022-10", 1, ["H100", "H100-SXM"]],
]


@pytest.mark.parametrize(
    ("query", "first"),
    [("h100", "h100-sxm-80gb"), ("H100 NVL", "h100-nvl-94gb"), ("h100 pcie", "h100-pcie-80gb")],
)
def test_what_is_called_just_as_it_was_typed_comes_first(query: str, first: str) -> None:
    own = (resources.assets_dir() / "kv-picker.js").read_text(encoding="utf-8")
    found = run("globalThis.kvreport = {};\n" + own + RUN, {"items": GPUS, "query": query})
    assert found[0] == first
