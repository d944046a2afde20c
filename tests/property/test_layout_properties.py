"""What must hold of every layout: nothing is lost, copies are known, more of anything never serves fewer."""

from functools import cache
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.kv_cache import held
from kvreport.accounting.parallel import Layout
from kvreport.accounting.stages import stages
from kvreport.accounting.weights import weights_by_component
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation import Estimate, estimate

MODELS = (
    "meta-llama/Llama-3.1-70B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-V3.2",
    "Qwen/Qwen3-235B-A22B",
    "openai/gpt-oss-120b",
    "Qwen/Qwen3.6-27B",
    "moonshotai/Kimi-K3",
)
TOKENS = 8192

models = st.sampled_from(MODELS)
powers = st.sampled_from((1, 2, 4, 8))
engines = st.sampled_from(("vllm", "sglang", "tensorrt-llm"))


@cache
def catalog() -> Catalog:
    return open_catalog()


def served(name: str, **asked: Any) -> Estimate | None:
    """The answer, or None where the layout is refused."""
    try:
        return estimate(name, **{"gpu": "b200", "context_tokens": TOKENS} | asked)
    except InputError:
        return None


def parts(model: Model, layout: Layout) -> dict[str, int]:
    found = weights_by_component(
        model,
        None,
        catalog().weight_formats,
        layout.tensor,
        expert_ranks=layout.expert_ranks,
        whole_experts=layout.expert,
        redundant_experts=layout.redundant_experts,
    )
    return {str(name): size for name, size in found.items()}


@given(models, powers)
@settings(deadline=None, max_examples=30)
def test_layers_of_all_stages_hold_what_the_whole_holds(name: str, number: int) -> None:
    model = catalog().model(name)
    each = stages(model, number)
    assert [index for one in each for index in one.layers] == list(range(model.layer_count))
    for tokens in (1, TOKENS, model.context_tokens):
        whole = int(held(model).request_bytes(tokens))
        assert sum(int(held(one.model).request_bytes(tokens)) for one in each) == whole


@given(models, powers, powers)
@settings(deadline=None, max_examples=40)
def test_experts_of_all_ranks_are_the_whole_and_everything_else_is_copied(
    name: str, data: int, tensor: int
) -> None:
    model = catalog().model(name)
    layout = Layout(tensor=tensor, data=data, expert=model.experts is not None)
    try:
        layout.check(model)
    except InputError:
        return
    plain, spread = parts(model, Layout(tensor=tensor)), parts(model, layout)
    rest = {part: size for part, size in spread.items() if part != "routed_experts"}
    assert rest == {part: size for part, size in plain.items() if part != "routed_experts"}
    if model.experts is not None and model.experts.routed % layout.expert_ranks == 0:
        whole = parts(model, Layout())["routed_experts"]
        assert abs(spread["routed_experts"] * layout.expert_ranks - whole) <= whole // 10_000


@given(models, powers, engines)
@settings(deadline=None, max_examples=30)
def test_one_of_everything_is_the_plain_answer(name: str, tensor: int, engine: str) -> None:
    plain = served(name, tensor_parallel=tensor, engine=engine)
    one = served(
        name,
        engine=engine,
        tensor_parallel=tensor,
        data_parallel=1,
        pipeline_parallel=1,
        decode_context_parallel=1,
        nodes=1,
        num_redundant_experts=0,
    )
    assert (plain is None) == (one is None)
    if plain is not None and one is not None:
        assert one.to_dict() == plain.to_dict()


@given(models, powers, powers, st.sampled_from(("vllm", "tensorrt-llm")))
@settings(deadline=None, max_examples=40)
def test_more_data_ranks_serve_as_many_times_more_at_least(
    name: str, tensor: int, data: int, engine: str
) -> None:
    # SGLang keeps memory free for each rank of data-parallel attention, so that more of them may hold less each.
    # vLLM's experts take the tokens of all ranks, unless each is sent to its experts alone.
    asked = {"tensor_parallel": tensor, "expert_parallel": True, "engine": engine}
    if engine == "vllm":
        asked["moe_backend"] = "deep_gemm_mega_moe"
    few = served(name, data_parallel=data, **asked)
    many = served(name, data_parallel=2 * data, **asked)
    if few is None or many is None:
        return
    assert many.max_concurrent_requests_by_memory >= 2 * few.max_concurrent_requests_by_memory
    assert many.max_concurrent_requests_by_memory % (2 * data) == 0


@given(models, powers, engines)
@settings(deadline=None, max_examples=30)
def test_context_ranks_divide_a_request_up_to_whole_blocks(name: str, ranks: int, engine: str) -> None:
    whole = served(name, tensor_parallel=8, engine=engine)
    divided = served(name, tensor_parallel=8, decode_context_parallel=ranks, engine=engine)
    if whole is None or divided is None:
        return
    here, there = whole.kv_bytes_per_request_per_gpu, divided.kv_bytes_per_request_per_gpu
    assert there <= here <= ranks * there


@given(models, powers, powers, st.sampled_from(("vllm", "sglang")))
@settings(deadline=None, max_examples=60)
@example("deepseek-ai/DeepSeek-V3.2", 2, 8, "vllm")
def test_bytes_of_all_ranks_are_the_whole_and_the_copies_that_are_known(
    name: str, data: int, tensor: int, engine: str
) -> None:
    model = catalog().model(name)
    layout = Layout(tensor=tensor, data=data, expert=data > 1 and model.experts is not None)
    try:
        layout.check(model)
    except InputError:
        return
    divided = rules(catalog().engine(engine)).component_ranks(model, layout)
    found = weights_by_component(
        model,
        None,
        catalog().weight_formats,
        tensor,
        expert_ranks=layout.expert_ranks,
        component_ranks=divided,
    )
    whole = weights_by_component(model, None, catalog().weight_formats)
    wide = weights_by_component(model, None, catalog().weight_formats, tensor)
    every = {**divided, "routed_experts": layout.expert_ranks}
    for part, size in found.items():
        if part in every:
            # Once over so many ranks, up to what a division rounds up and scales that are whole on every rank; a
            # part of one rank is a copy on each.
            ranks = every[part]
            assert whole[part] <= size * ranks <= whole[part] * 1.02 + 4096 * ranks
        else:
            assert size == wide[part]  # a copy on each data rank


CARDS = ("rtx-5080", "rtx-5090", "rtx-pro-5000-48gb", "rtx-pro-5000-72gb", "rtx-pro-6000-ws")
"""Of one compute capability, by memory."""


@given(
    models,
    st.lists(st.integers(0, len(CARDS) - 2), min_size=2, max_size=4),
    st.integers(0, 3),
    st.sampled_from(("vllm", "sglang")),
)
@settings(deadline=None, max_examples=30)
def test_a_larger_card_in_a_machine_never_holds_fewer(
    name: str, cards: list[int], place: int, engine: str
) -> None:
    def held_by(chosen: list[int]) -> int:
        found = served(
            name,
            engine=engine,
            gpu=[CARDS[one] for one in chosen],
            tensor_parallel=1,
            pipeline_parallel=len(chosen),
            max_batched_tokens=2048,
            max_seqs=64,
            eager=True,
        )
        return 0 if found is None else found.max_concurrent_requests_by_memory

    larger = list(cards)
    larger[place % len(cards)] += 1
    assert held_by(larger) >= held_by(cards)


@given(models, powers, st.integers(1, 4), engines)
@settings(deadline=None, max_examples=30)
def test_a_draft_never_adds_requests(name: str, tensor: int, tokens: int, engine: str) -> None:
    alone = served(name, tensor_parallel=tensor, engine=engine)
    drafting = served(name, tensor_parallel=tensor, engine=engine, draft="mtp", num_speculative_tokens=tokens)
    if alone is None or drafting is None:
        return
    assert drafting.budget.weights >= alone.budget.weights
    assert drafting.max_concurrent_requests_by_memory <= alone.max_concurrent_requests_by_memory


@given(
    models,
    st.lists(st.integers(0, len(CARDS) - 1), min_size=2, max_size=4),
    st.sampled_from(("vllm", "sglang")),
)
@settings(deadline=None, max_examples=20)
def test_layers_of_unequal_cards_are_those_of_the_model(name: str, cards: list[int], engine: str) -> None:
    found = served(
        name,
        engine=engine,
        gpu=[CARDS[one] for one in cards],
        tensor_parallel=1,
        pipeline_parallel=len(cards),
        pipeline_partition="best",
    )
    if found is None:
        return
    ranks = sorted(found.deployment.ranks, key=lambda one: one.layers.start)
    assert [layer for one in ranks for layer in one.layers] == list(range(catalog().model(name).layer_count))
    each = [int(one.own_requests(TOKENS)) for one in ranks]
    assert found.max_concurrent_requests_by_memory == min(each)


def refusal(layout: Layout, model: Model) -> str | None:
    """Why a layout is refused, or None."""
    try:
        layout.check(model)
    except InputError as error:
        return str(error)
    return None


@given(models, powers, st.sampled_from((None, 2, 3)))
@settings(deadline=None, max_examples=20)
def test_what_a_layout_refuses_says_what_is_allowed(name: str, tensor: int, odd: int | None) -> None:
    model = catalog().model(name)
    for layout in (
        Layout(tensor=tensor * (odd or 1)),
        Layout(tensor=tensor, decode_context=odd or 1),
        Layout(tensor=tensor, data=odd or 1, expert=True),
        Layout(tensor=tensor, pipeline=model.layer_count + (odd or 0)),
        Layout(tensor=tensor, data=tensor, nodes=odd or 1),
    ):
        said = refusal(layout, model)
        assert said is None or ("found" in said and "allowed" in said)
