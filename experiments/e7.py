"""E7: what is gone before a model is there: context, libraries, first allocations.

Memory in use is asked of the driver's own tool, because most of this never passes PyTorch's
allocator. The first reading must come before anything touches the device, so :func:`begin` runs
before the device is described.
"""

from __future__ import annotations

from typing import Final

from experiments import theory
from experiments.device import Device, used_by_all
from experiments.models import build, narrow, subject
from experiments.prefill import prefill, tokens
from experiments.record import Log

NAME: Final = "e7-fixed-costs"
_FIRST: dict[str, int | None] = {}


def begin() -> None:
    """Read what is in use before this process touches the device."""
    _FIRST["before"] = used_by_all()


def run(log: Log, device: Device) -> None:
    """Take the steps that every program takes, and read after each."""
    import torch

    before = _FIRST.get("before")
    if before is None or not device.is_cuda:
        log.fail("fixed costs", "the driver's tool gave no reading")
        return
    log.add("before this process", "in use by all", before, relation="none", step=0)
    kept: list[object] = []
    small = narrow(subject("meta-llama/Llama-3.1-8B"))

    def context() -> None:
        torch.cuda.init()
        torch.cuda.synchronize()
        torch.cuda.mem_get_info()

    def first_tensor() -> None:
        kept.append(torch.zeros(1, device="cuda"))

    def product() -> None:
        kept.append(torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16))
        kept[-1] @ kept[-1]  # type: ignore[operator]

    def attention() -> None:
        q = torch.randn(1, 32, 2048, 128, device="cuda", dtype=torch.bfloat16)
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    def convolution() -> None:
        x = torch.randn(1, 64, 64, 64, device="cuda", dtype=torch.bfloat16)
        torch.nn.functional.conv2d(x, torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16))

    def model() -> None:
        net = build(small, device="cuda")
        prefill(net, tokens(small, 1, 512, "cuda"))

    for number, (name, step) in enumerate(
        (
            ("driver's context", context),
            ("first tensor", first_tensor),
            ("first product", product),
            ("first attention", attention),
            ("first convolution", convolution),
            ("first forward pass", model),
        ),
        start=1,
    ):
        try:
            step()
        except RuntimeError as error:
            log.fail(name, error)
            continue
        device.sync()
        now = used_by_all()
        if now is None:
            log.fail(name, "the driver's tool gave no reading")
            continue
        reserved = device.reserved()
        log.add(name, "outside the allocator", now - before - reserved, relation="none", step=number,
                note="the driver's tool counts in MiB")  # fmt: skip
        log.add(name, "held by the allocator", reserved, relation="none", step=number)
    last = used_by_all()
    if last is not None:
        expected = int(theory.catalog().engine("vllm").coefficients["non_framework_bytes"])
        log.add("all of it", "outside the allocator", last - before - device.reserved(), expected, relation="at_least",
                note="computed: what the engine's data reserve beside weights, cache and activations", step=7)  # fmt: skip
    log.save()
