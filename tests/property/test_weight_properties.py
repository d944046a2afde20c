"""What must hold for the weights of every shape, format and model of the catalog."""

from hypothesis import given
from hypothesis import strategies as st

from kvreport.accounting.parallel import allowed_tensor_parallel
from kvreport.accounting.weights import (
    active_parameters,
    parameters,
    parameters_by_component,
    tensor_bytes,
    weights_by_component,
)
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.load import open_catalog

CATALOG = open_catalog()
FORMATS = CATALOG.weight_formats
MODELS = list(CATALOG.models.values())

sides = st.integers(32, 5000)
formats = st.sampled_from(list(FORMATS.values()))


@given(sides, sides, formats)
def test_a_quantised_matrix_is_larger_than_its_bits_and_smaller_than_with_a_scale_each(
    rows: int, columns: int, form: WeightFormat
) -> None:
    size = tensor_bytes((rows, columns), form)
    elements = rows * columns
    assert size >= elements * form.bits / 8
    assert size <= elements * (form.bits / 8 + form.scale_bytes) + form.tensor_bytes + 1


@given(sides, sides, sides, formats)
def test_more_rows_never_weigh_less(rows: int, more: int, columns: int, form: WeightFormat) -> None:
    assert tensor_bytes((rows + more, columns), form) >= tensor_bytes((rows, columns), form)


@given(st.sampled_from(MODELS), st.sampled_from([None, *FORMATS.values()]))
def test_more_ranks_never_weigh_more_on_each(model: object, form: WeightFormat | None) -> None:
    before: dict[str, int] | None = None
    for ranks in allowed_tensor_parallel(model):  # type: ignore[arg-type]
        now = weights_by_component(model, form, FORMATS, ranks)  # type: ignore[arg-type]
        if before is not None:
            assert now.keys() == before.keys()
            assert all(now[part] <= before[part] for part in now)
        before = dict(now)


@given(st.sampled_from(MODELS), formats.filter(lambda form: form.bits <= 16))
def test_no_format_is_heavier_than_sixteen_bits(model: object, form: WeightFormat) -> None:
    plain = weights_by_component(model, FORMATS["bf16"], FORMATS)  # type: ignore[arg-type]
    other = weights_by_component(model, form, FORMATS)  # type: ignore[arg-type]
    assert all(other[part] <= plain[part] for part in plain)


@given(st.sampled_from(MODELS))
def test_ranks_together_hold_at_least_the_whole(model: object) -> None:
    whole = weights_by_component(model, None, FORMATS)  # type: ignore[arg-type]
    for ranks in allowed_tensor_parallel(model):  # type: ignore[arg-type]
        each = weights_by_component(model, None, FORMATS, ranks)  # type: ignore[arg-type]
        assert all(each[part] * ranks >= whole[part] for part in whole)


@given(st.sampled_from(MODELS))
def test_a_token_never_uses_more_parameters_than_there_are(model: object) -> None:
    assert 0 < active_parameters(model) <= parameters(model)  # type: ignore[arg-type]
    assert sum(parameters_by_component(model).values()) >= parameters(model)  # type: ignore[arg-type]
