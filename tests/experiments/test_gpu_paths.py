"""What only a GPU runs, tried on a CPU that pretends: a path that nobody takes for months must not rot.

Sizes are small and the allocator's answers are made up, so nothing here says anything about memory or time;
it says that every experiment gets from its first line to a file that our own reader accepts.
"""

import contextlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.17")

from experiments import e1, e2, e3, e4, e5, e6, e7, models  # noqa: E402
from experiments.device import Device  # noqa: E402
from experiments.record import Log  # noqa: E402
from kvreport.catalog.measurement import read_measurement  # noqa: E402

SMALL = "Qwen/Qwen3-0.6B"


class Pretended(Device):
    """A CPU that says it is a CUDA device with some memory."""

    kind = "cpu"
    is_cuda = True

    def __init__(self):
        self.counter = 0

    def describe(self):
        return {"label": "pretended", "accelerator": "pretended", "driver": "0", "memory_bytes": 1 << 40}

    def slug(self):
        return "pretended"

    def versions(self):
        return {"torch": torch.__version__}

    def _more(self):
        self.counter += 1 << 30
        return self.counter

    allocated = reserved = peak = peak_reserved = _more

    def forget_peak(self): ...
    def sync(self): ...
    def clear(self): ...

    def free(self):
        return 1 << 28

    def clock(self, call, **_):
        real = Device("cpu")
        return real.clock(call, repeats=2, warmups=1)


@pytest.fixture
def device(monkeypatch):
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    small = models.narrow(models.subject(SMALL), window=64)
    for module in (e1, e2, e3, e4, e5, e6, e7):
        if hasattr(module, "subject"):
            monkeypatch.setattr(module, "subject", lambda _: small)
        for name in ("MODELS", "PREFILLS", "DECODES", "BATCHES", "PAGES"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name)[:2])
    return Pretended()


def finished(log: Log) -> object:
    log.save()
    return read_measurement(log.path)


def begin(name: str, device: Device, folder) -> Log:
    return Log(name, device, folder, seconds=600)


def test_e1_reads_the_cache_on_the_way_to_the_longest_context(device, tmp_path, monkeypatch):
    monkeypatch.setattr(e1, "PIECE_TOKENS", 64)
    log = begin(e1.NAME, device, tmp_path)
    e1._grow(log, device, "case", models.narrow(models.subject(SMALL)), [32, 64, 128, 256])
    made = finished(log)
    assert [reading.at["context_tokens"] for reading in made.readings] == [32, 64, 128, 256]
    assert all(reading.holds for reading in made.readings)
    assert made.failures == ()


def test_e2_asks_the_allocator_for_every_batch(device, tmp_path, monkeypatch):
    monkeypatch.setattr(e2, "CONTEXT", 64)
    log = begin(e2.NAME, device, tmp_path)
    e2._batches(log, device, models.narrow(models.subject(SMALL)), "eager")
    made = finished(log)
    quantities = [reading.quantity for reading in made.readings]
    assert quantities.count("cache") == 2
    assert {"weights", "allocator's growth", "activations", "fragmentation"} <= set(quantities)


def test_e2_writes_down_a_refusal_and_stops(device, tmp_path, monkeypatch):
    monkeypatch.setattr(device, "attempt", lambda _: False)
    monkeypatch.setattr(e2, "CONTEXT", 64)
    log = begin(e2.NAME, device, tmp_path)
    e2._batches(log, device, models.narrow(models.subject(SMALL)), "sdpa")
    refused = [reading for reading in finished(log).readings if reading.measured is None]
    assert len(refused) == 1
    assert refused[0].note == "the allocator refused"


def test_e3_ends_every_model_with_a_boundary_that_was_prefilled(device, tmp_path, monkeypatch):
    monkeypatch.setattr(e3, "CONTEXTS", (64,))
    monkeypatch.setattr(device, "free", lambda: 40_000_000)
    log = begin(e3.NAME, device, tmp_path)
    e3.run(log, device)
    made = finished(log)
    assert made.failures == ()
    assert {reading.quantity for reading in made.readings} == {
        "largest batch, against the ceiling",
        "largest batch, against caches and their growing",
        "largest batch, prefilled and decoded",
    }


def test_e4_builds_the_model_once_for_each_number_of_heads(device, tmp_path, monkeypatch):
    monkeypatch.setattr(e4, "KV_HEADS", (8, 2))
    monkeypatch.setattr(e4, "CONTEXT", {"cpu": 64})
    monkeypatch.setattr(e4, "narrow", lambda model: model)
    log = begin(e4.NAME, device, tmp_path)
    e4.run(log, device)
    made = finished(log)
    assert made.failures == ()
    assert [reading.quantity for reading in made.readings] == ["cache", "allocator's growth"] * 2


def test_e5_holds_times_against_bounds_at_measured_ceilings(device, tmp_path, monkeypatch):
    monkeypatch.setattr(e5, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(e5, "PRODUCT", 64)
    monkeypatch.setattr(e5, "PREFILLS", ((1, 32),))
    monkeypatch.setattr(e5, "DECODES", ((2, 32),))

    class Graph:
        def replay(self): ...

    @contextlib.contextmanager
    def nothing(*_):
        yield

    class Stream:
        def wait_stream(self, _): ...

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", nothing)
    monkeypatch.setattr(torch.cuda, "graph", nothing)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    log = begin(e5.NAME, device, tmp_path)
    e5.run(log, device)
    made = finished(log)
    assert made.failures == ()
    found = {(reading.case.split(", ")[-1], reading.quantity) for reading in made.readings}
    assert {("as it comes", "decode step"), ("captured graph", "decode step")} <= found
    assert all(reading.computed for reading in made.readings if reading.case != "ceiling")


def test_e6_serves_in_pages_and_in_rows(device, tmp_path, monkeypatch):
    monkeypatch.setattr(e6, "NEW_TOKENS", 4)
    monkeypatch.setattr(e6, "narrow", lambda model: model)
    log = begin(e6.NAME, device, tmp_path)
    e6.run(log, device)
    made = finished(log)
    assert made.failures == ()
    answered = [reading for reading in made.readings if reading.quantity == "requests answered"]
    assert [reading.holds for reading in answered] == [True, True]
    assert sum(reading.quantity == "throughput" for reading in made.readings) == 3


def test_e7_reads_what_the_driver_counts_after_every_step(device, tmp_path, monkeypatch):
    used = iter(range(1 << 30, 1 << 40, 1 << 24))
    monkeypatch.setattr(e7, "used_by_all", lambda: next(used))
    monkeypatch.setattr(device, "reserved", lambda: 1 << 21)
    for name in ("init", "synchronize", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    plain = {name: getattr(torch, name) for name in ("zeros", "randn")}
    for name, make in plain.items():
        monkeypatch.setattr(
            torch, name, lambda *size, make=make, **options: make(*size, **(options | {"device": "cpu"}))
        )
    monkeypatch.setattr(e7, "build", lambda model, **_: models.build(model, device="cpu"))
    monkeypatch.setattr(
        e7, "tokens", lambda _, batch, length, __: torch.zeros(batch, length, dtype=torch.long)
    )
    e7.begin()
    log = begin(e7.NAME, device, tmp_path)
    e7.run(log, device)
    made = finished(log)
    assert made.failures == ()
    assert made.readings[-1].case == "all of it"
    assert made.readings[-1].computed
