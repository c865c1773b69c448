"""The types of Arrow columns, as the kinds of fields need them. pyarrow is imported when a type is looked at."""

from typing import Any


def is_list(kind: Any) -> bool:
    """Whether values are lists."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def keys(kind: Any) -> list[str]:
    """The names of the fields of a list's structs."""
    import pyarrow as pa

    return [field.name for field in kind.value_type] if pa.types.is_struct(kind.value_type) else []


def holds_numbers(kind: Any) -> bool:
    """Whether values are whole numbers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(decoded(kind)))


def is_null(kind: Any) -> bool:
    """Whether all values are null."""
    import pyarrow as pa

    return bool(pa.types.is_null(kind))


def decoded(kind: Any) -> Any:
    """The type of a column's values; a dictionary column has indices into them."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def holds_images(kind: Any) -> bool:
    """Whether values are bytes, or structs with a field of them."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        names = [field.name for field in kind]  # pyarrow cannot read a struct with two fields of one name
        return len(set(names)) == len(names) and "bytes" in names and holds_images(kind.field("bytes").type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def holds_labels(kind: Any) -> bool:
    """Whether values are strings or whole numbers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind)) or holds_text(kind)


def holds_text(kind: Any) -> bool:
    """Whether values are strings."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
