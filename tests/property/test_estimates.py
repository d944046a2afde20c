"""What must hold for every estimate, whatever model, accelerator, format and context."""

from __future__ import annotations

from functools import cache

from fuzzing import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import kvreport
from kvreport.accounting.capacity import users
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.estimate import Estimate

CATALOG = open_catalog()
MODELS = sorted(CATALOG._models.files)
GPUS = sorted(CATALOG._accelerators.files)
CHECKED = settings(
    max_examples=examples(120), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)

questions = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "gpu": st.sampled_from(GPUS),
        "tensor_parallel": st.sampled_from([1, 2, 4, 8]),
        "weights": st.sampled_from([None, "bf16", "fp8", "int4", "nvfp4"]),
        "kv": st.sampled_from(["auto", "bf16", "fp8"]),
        "engine": st.sampled_from(["vllm", "ceiling"]),
        "context_tokens": st.integers(1, 1 << 21),
    }
)


@cache
def ask(**question) -> Estimate | None:
    """The estimate, or None where the combination is refused."""
    try:
        return kvreport.estimate(question.pop("model"), catalog=CATALOG, **question)
    except InputError:
        return None


def answered(question) -> Estimate:
    answer = ask(**question)
    assume(answer is not None)
    return answer


@CHECKED
@given(questions)
def test_an_estimate_is_consistent_with_itself(question):
    answer = answered(question)
    limits = answer.budget
    assert answer.weight_bytes_per_gpu == sum(answer.weights_by_component.values())
    assert answer.parameters["total"] >= answer.parameters["active"] > 0
    assert limits.kv_pool_bytes >= 0
    assert answer.max_concurrent_requests <= answer.max_concurrent_requests_ceiling
    if question["context_tokens"] >= 256:  # by then the short windows of compressed caches are full
        assert answer.kv_bytes_per_request_per_gpu >= answer.state_bytes_per_request_per_gpu
    if answer.max_concurrency is not None:
        assert answer.max_concurrent_requests <= answer.max_concurrency
    assert (answer.verdict in ("fits", "tight")) <= (answer.max_concurrent_requests >= 1)
    assert len(answer.explanation) > 4
    assert not any("\n" in line for line in answer.explanation)


@CHECKED
@given(questions)
def test_the_longest_context_fits_and_one_token_more_does_not(question):
    """Of a server that is told just that length: the reserve of some models follows it, and so does the pool."""
    answer = answered(question)
    longest = answer.max_context_tokens

    def fitting(tokens: int) -> int:
        told = answered({**question, "context_tokens": tokens})
        return int(users(told.budget.kv_pool_bytes, told.plan, tokens))

    if longest:
        assert fitting(longest) >= 1
    if longest < answer.request.model.context_tokens:
        assert fitting(longest + 1) == 0


@CHECKED
@given(questions, st.integers(1, 1 << 21))
def test_a_longer_context_never_costs_less_and_never_serves_more(question, other):
    short, long = sorted((question["context_tokens"], other))
    first, second = (answered({**question, "context_tokens": tokens}) for tokens in (short, long))
    assert first.kv_bytes_per_request_per_gpu <= second.kv_bytes_per_request_per_gpu
    assert first.max_concurrent_requests >= second.max_concurrent_requests
    assert first.kv_bytes_per_token_per_gpu >= second.kv_bytes_per_token_per_gpu


@CHECKED
@given(questions)
def test_more_devices_never_raise_the_bytes_on_each(question):
    one = answered(question)
    two = answered({**question, "tensor_parallel": 2 * question["tensor_parallel"]})
    assert two.weight_bytes_per_gpu <= one.weight_bytes_per_gpu
    assert two.kv_bytes_per_token_per_gpu <= one.kv_bytes_per_token_per_gpu
    assert two.state_bytes_per_request_per_gpu <= one.state_bytes_per_request_per_gpu


@CHECKED
@given(questions)
def test_eight_bits_never_hold_more_than_sixteen(question):
    wide = answered({**question, "kv": "bf16"})
    narrow = answered({**question, "kv": "fp8"})
    assert narrow.kv_bytes_per_token_per_gpu <= wide.kv_bytes_per_token_per_gpu
    assert narrow.state_bytes_per_request_per_gpu <= wide.state_bytes_per_request_per_gpu
    lighter = answered({**question, "weights": "int4"})
    heavier = answered({**question, "weights": "bf16"})
    assert lighter.weight_bytes_per_gpu <= heavier.weight_bytes_per_gpu


@CHECKED
@given(questions, st.floats(0.05, 1), st.floats(0.05, 1))
def test_a_larger_share_of_memory_never_serves_fewer(question, first, second):
    low, high = sorted((first, second))
    little, much = (answered({**question, "utilization": share}) for share in (low, high))
    assert little.budget.kv_pool_bytes <= much.budget.kv_pool_bytes
    if (much.start_shortage_bytes or 0) <= 0:  # an engine refuses to start with more than is free
        assert little.max_concurrent_requests <= much.max_concurrent_requests
    assert little.max_context_tokens <= much.max_context_tokens


@CHECKED
@given(questions, st.integers(1, 1 << 38))
def test_a_given_pool_is_the_pool(question, pool):
    answer = answered({**question, "kv_pool": pool})
    assert answer.budget.kv_pool_bytes == pool
    assert answer.max_concurrent_requests * answer.kv_bytes_per_request_per_gpu <= pool
    assert answer.verdict != "weights_exceed_memory"
