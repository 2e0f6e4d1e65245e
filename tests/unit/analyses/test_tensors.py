from __future__ import annotations

import pytest
from tracekit.analyses.shared.tensor_shapes import (
    Tensor,
    item_bytes,
    parse_dtypes,
    parse_shapes,
    tensors,
)


def test_an_input_is_a_tensor_where_its_dtype_or_its_dimensions_say_so() -> None:
    shapes, dtypes = "[[2,3],[],[],[[2],[4,5]],[0]]", '["double","long int","Scalar","TensorList","float"]'
    assert tensors(shapes, dtypes) == [
        Tensor((2, 3), "double"),
        Tensor((), "long int"),
        None,
        None,
        Tensor((0,), "float"),
    ]


def test_without_dtypes_only_dimensions_make_a_tensor() -> None:
    assert tensors("[[2,3],[]]", "") == [Tensor((2, 3), ""), None]
    assert tensors("[[2,3],[4]]", '["float"]') == [Tensor((2, 3), "float"), Tensor((4,), "")]


def test_bytes_are_elements_times_item_size() -> None:
    assert [Tensor((32, 3, 256, 256), name).bytes for name in ("float", "double", "bool", "")] == [
        25_165_824,
        50_331_648,
        6_291_456,
        None,
    ]
    assert Tensor((), "c10::Half").bytes == 2
    assert Tensor((4, 0), "float").bytes == 0


@pytest.mark.parametrize("text", ["", "(no shapes recorded)", "[[1,2", "7", '{"a":1}'])
def test_text_that_is_no_list_holds_nothing(text: str) -> None:
    assert (parse_shapes(text), parse_dtypes(text)) == ([], [])


def test_odd_entries_have_no_shape() -> None:
    assert parse_shapes('[[2,"u0"],null,5,[[1],["x"]],[[1],[]]]') == [None, None, None, None, [(1,), ()]]
    assert tensors('[[2,"u0"]]', '["float"]') == [None]
    assert parse_dtypes('["float",null]') == ["float", ""]
    assert item_bytes(" c10::complex<float> ") == 8
