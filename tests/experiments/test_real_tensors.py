"""The experiments' own parts on real tensors; skipped where PyTorch and transformers are not installed."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.20")

from experiments import e3, e5, e6, theory  # noqa: E402
from experiments.cache import filled, held, template, tensors  # noqa: E402
from experiments.check import caches, parameters  # noqa: E402
from experiments.device import Device  # noqa: E402
from experiments.models import build, narrow, subject, with_heads  # noqa: E402
from experiments.prefill import forward, prefill, tokens  # noqa: E402
from experiments.record import Log  # noqa: E402
from kvreport.catalog.measurement import read_measurement  # noqa: E402

SMALL = ("Qwen/Qwen3-0.6B", "google/gemma-3-1b-it", "zai-org/GLM-4.7-Flash", "ai21labs/Jamba-v0.1")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("model_id", SMALL)
def test_parameters_and_caches_agree_with_transformers(model_id):
    full = subject(model_id)
    assert parameters(full).agrees
    assert [finding.agrees for finding in caches(full)] == [True, True]


def test_a_cache_counts_each_tensor_once_and_a_view_at_its_own_size():
    class Layer:
        def __init__(self):
            whole = torch.zeros(1, 2, 10, 4, dtype=torch.bfloat16)
            self.keys = whole[:, :, -3:, :]
            self.again = self.keys
            self.position = torch.tensor(10)

    Layer.__module__ = "transformers.cache_utils"
    found = held(Layer())
    assert (found.shape_bytes, found.storage_bytes, found.tensors) == (
        1 * 2 * 3 * 4 * 2,
        1 * 2 * 10 * 4 * 2,
        1,
    )


def test_a_filled_cache_decodes_like_a_prefilled_one():
    model = narrow(subject("google/gemma-3-1b-it"), window=32)
    shapes, net = build(model, device="meta"), build(model, device="cpu")
    pattern = template(prefill(shapes, tokens(model, 1, 50, "meta")))
    cache = filled(pattern, 3, "cpu")
    assert held(pattern).storage_bytes == 0
    assert held(cache).shape_bytes == theory.cache_bytes(model, 50, 3)
    cache = forward(net, tokens(model, 3, 1, "cpu"), cache)
    assert held(cache).shape_bytes == theory.cache_bytes(model, 51, 3)


def test_prefilling_in_pieces_ends_with_the_same_cache():
    model = narrow(subject("Qwen/Qwen3-0.6B"))
    net = build(model, device="cpu")
    ids = tokens(model, 2, 60, "cpu")
    shapes = [
        [(name, tuple(tensor.shape)) for name, tensor in tensors(prefill(net, ids, piece=piece))]
        for piece in (None, 7)
    ]
    assert shapes[0] == shapes[1]


def test_fewer_kv_heads_shrink_the_cache_in_proportion():
    model = narrow(with_heads(subject("meta-llama/Llama-3.1-8B"), 2))
    net = build(model, device="meta")
    assert held(prefill(net, tokens(model, 1, 100, "meta"))).shape_bytes == 2 * 32 * 2 * 128 * 100 * 2


def test_a_static_cache_goes_on_where_it_was_filled_to():
    model = narrow(subject("Qwen/Qwen3-0.6B"))
    cache = e5.static_cache(model, 2, 40, Device("cpu"))
    forward(build(model, device="cpu"), tokens(model, 2, 1, "cpu"), cache)
    assert int(cache.layers[0].cumulative_length) == 41


@pytest.mark.parametrize("limit", [0, 1, 3, 99, 437, 470, 499])
@pytest.mark.parametrize("guess", [0, 1, 470, 600])
def test_bisection_finds_the_largest_batch(limit, guess):
    found, probes = e3.largest(lambda batch: batch <= limit, guess, 500)
    assert found == limit
    assert probes <= 20


def test_a_boundary_is_found_written_and_read_back(tmp_path):
    """The whole procedure of E3 on a CPU, with an allocator that refuses past a room of our own."""

    class Limited(Device):
        def attempt(self, call):
            call()
            return self.batch_bytes <= self.room

    model = narrow(subject("Qwen/Qwen3-0.6B"))
    device = Limited("cpu")
    device.room = 5 * theory.cache_bytes(model, 65) + 1
    device.batch_bytes = 0
    original = e3.filled

    def counted(pattern, batch, kind):
        device.batch_bytes = batch * theory.cache_bytes(model, 65)
        return original(pattern, batch, kind)

    log = Log("e3-boundary", device, tmp_path, seconds=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(e3, "filled", counted)
        e3.boundary(log, device, model, (64,), stop_at=0.0, room_bytes=device.room)
    log.save()
    made = read_measurement(tmp_path / "e3-boundary-cpu.json")
    assert made.readings[0].measured == made.readings[0].computed == 5
    assert made.readings[0].relation == "at_most"


def test_pages_are_counted_up():
    assert e6.pages_needed((50, 100), 64) == -(-(50 + 32) // 64) + -(-(100 + 32) // 64) == 2 + 3


def test_a_log_says_what_failed_and_stays_valid(tmp_path):
    log = Log("e1-cache-bytes", Device("cpu"), tmp_path, seconds=1)
    log.add("case", "cache", 10, 10, context_tokens=1)
    log.fail("another", RuntimeError("out of\npatience"))
    made = json.loads((tmp_path / "e1-cache-bytes-cpu.json").read_text())
    assert made["failures"] == ["another: RuntimeError: out of patience"]
    assert read_measurement(tmp_path / "e1-cache-bytes-cpu.json").readings[0].holds


@pytest.mark.parametrize(
    ("error", "borne"),
    [
        (torch.OutOfMemoryError("no room"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), False),
    ],
)
def test_an_allocators_refusal_is_an_answer(error, borne):
    def call():
        raise error

    assert Device("cpu").attempt(call) is borne
    assert Device("cpu").attempt(lambda: None)


def test_any_other_error_is_not_taken_for_a_refusal():
    def call():
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        Device("cpu").attempt(call)
