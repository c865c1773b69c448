"""The values of a data set's rows, by the features of the datasets library.

Lists of words become texts with a space between two words, whole numbers in them get their names, and values that
the library keeps as JSON are decoded. An image without bytes is read from its path, if that is a file of the folder.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from understudy.data.sources.arrow_rows import CHECKS, Check, Row, RowLayout
from understudy.data.sources.arrow_types import decoded, holds_numbers, holds_text, is_list
from understudy.data.sources.dataset_parts import Folder
from understudy.recipe.tasks import Kind


def _holds_words(kind: Any) -> bool:
    """Whether values are strings, or lists of strings or whole numbers."""
    return holds_text(kind) or (
        is_list(kind) and (holds_text(decoded(kind.value_type)) or holds_numbers(kind.value_type))
    )


WORDS: Check = (_holds_words, "Name a column of strings, or of lists of words.")
COLUMN_CHECKS: Mapping[Kind, Check] = MappingProxyType({**CHECKS, "text": WORDS, "optional text": WORDS})


class Values:
    """The values of a part's rows.

    Args:
        layout: the columns of the task's fields.
        features: the library's features of the part.
        folder: the data set's folder.
    """

    def __init__(self, layout: RowLayout, features: Any, folder: Folder) -> None:
        label = layout.columns.get("label")
        self.labels = _names(features[label]) if label else None
        """The names of whole numbers in the column of labels."""
        images = {column for field, column in layout.columns.items() if layout.fields[field] == "image"}
        self._images = [column for column in images if column in features]
        self._lists = {
            column: _names(getattr(features[column], "feature", None))
            for column in {*layout.columns.values()} - images - {label}
        }
        turns = layout.conversation.names if layout.conversation else []
        self._turns = type(features)({name: features[name] for name in turns if name in features})
        self._folder = folder

    def row(self, row: Row) -> Row:
        """The values as records have them.

        Raises:
            ValueError: a list holds no words, or an image is no file of the folder; the message says which.
        """
        values = {**row, **self._turns.decode_example({name: row[name] for name in self._turns})}
        for column, names in self._lists.items():
            if isinstance(values[column], list):
                values[column] = _text(column, values[column], names)
        for column in self._images:
            values[column] = self._image(column, values[column])
        return values

    def _image(self, column: str, value: Any) -> Any:
        if not isinstance(value, dict) or value["bytes"] is not None or not value.get("path"):
            return value
        if not self._folder.has(value["path"]):
            raise ValueError(f"column {column} names {value['path']!a}, which is no file of the data set's folder")
        try:
            return (self._folder.root / value["path"]).read_bytes()
        except OSError as error:
            raise ValueError(f"column {column} names {value['path']!a}, which cannot be read") from error


def _names(feature: Any) -> Sequence[str] | None:
    """The names of a ClassLabel; None for another feature."""
    from datasets import ClassLabel

    return list(feature.names) if isinstance(feature, ClassLabel) else None


def _text(column: str, items: Sequence[Any], names: Sequence[str] | None) -> str:
    """The words of a list as a text."""
    words = list[str]()
    for number, item in enumerate(items):
        if names is not None and isinstance(item, int) and not 0 <= item < len(names):
            raise ValueError(f"column {column}: item {number} is {item}, and only 0 to {len(names) - 1} have a name")
        word = names[item] if names is not None and isinstance(item, int) else item
        if word is None or str(word).split() != [str(word)]:
            raise ValueError(f"column {column}: item {number} is {word!a}, not a word without spaces")
        words.append(str(word))
    return " ".join(words)
