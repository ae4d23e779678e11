"""JSON that a type nearly takes: its own fields, with values that fit, nearly fit, or are junk."""

from typing import Any

import msgspec
import msgspec.inspect as types
from hypothesis import strategies as st

_ODD = st.sampled_from(
    [0, -1, 1 << 31, 1 << 63, -(1 << 63) - 1, 10**30, 1e308, 0.5, "", "0", "null", "30s", "\0", "..",
     "\ud800", "a" * 300, "2024-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+23:59", "YQ==", True]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | _ODD
JUNK: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)

_PLAIN: dict[type[types.Type], st.SearchStrategy[Any]] = {
    types.NoneType: st.none(),
    types.BoolType: st.booleans(),
    types.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    types.StrType: st.text(max_size=8),
    types.AnyType: JUNK,
}


def shaped(kind: Any) -> st.SearchStrategy[Any]:
    """Return values of which many are taken as a *kind*, a struct of msgspec."""
    return _of(types.type_info(kind), 3)


def _of(info: types.Type, depth: int) -> st.SearchStrategy[Any]:
    if isinstance(info, types.StructType) and depth:
        return _struct(info, depth - 1)
    if isinstance(info, types.UnionType):
        return st.one_of(*[_of(one, depth) for one in info.types])
    if isinstance(info, types.ListType | types.VarTupleType | types.SetType) and depth:
        return st.lists(_of(info.item_type, depth - 1), max_size=2)
    if isinstance(info, types.DictType) and depth:
        return st.dictionaries(st.text(max_size=4), _of(info.value_type, depth - 1), max_size=2)
    if isinstance(info, types.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, types.EnumType):
        return st.sampled_from([member.value for member in info.cls])
    return _scalar(info)


def _scalar(info: types.Type) -> st.SearchStrategy[Any]:
    if isinstance(info, types.IntType):
        return st.integers(info.ge, info.le)
    if isinstance(info, types.StrType) and info.pattern:
        return st.from_regex(info.pattern, fullmatch=True)
    return _PLAIN.get(type(info), JUNK)


def _struct(info: types.StructType, depth: int) -> st.SearchStrategy[Any]:
    needed, free = dict[str, st.SearchStrategy[Any]](), dict[str, st.SearchStrategy[Any]]()
    for field in info.fields:
        needed_here = field.required and field.default is msgspec.NODEFAULT
        (needed if needed_here else free)[field.encode_name] = _of(field.type, depth)
    tag = {info.tag_field: st.just(info.tag)} if info.tag_field else {}
    right = st.fixed_dictionaries(needed | tag, optional=free)
    names = [*needed, *free, "unknown"]
    return right | st.builds(
        lambda value, name, junk: {**value, name: junk}, right, st.sampled_from(names), JUNK
    )
