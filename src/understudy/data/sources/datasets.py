"""Records from data sets of the Hugging Face datasets library: a folder of files, a saved data set, or a hub id.

They are read batch by batch, as Arrow tables, and images are decoded by our own code.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from understudy.data.raw import SPLITS, Broken, Raw, Reading, Split
from understudy.data.sources import built_dataset, dataset_hub, files, saved_dataset
from understudy.data.sources.arrow_rows import RowLayout, first_line
from understudy.data.sources.conversations import Format, columns_of
from understudy.data.sources.dataset_parts import Folder, Part, Parts, damage, folder, library, selection
from understudy.data.sources.dataset_splits import chosen
from understudy.data.sources.dataset_values import COLUMN_CHECKS, Values
from understudy.data.sources.source import DataSource
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints, canonical, sha256


class DatasetsSource(SourceSection):
    """A folder that load_dataset reads or save_to_disk wrote, or a hub id at a commit."""

    path_may_be_hub_id: ClassVar[bool] = True

    type: Literal["datasets"]
    path: str
    name: str | None = None
    """The configuration; only a data set with several needs it."""
    revision: str | None = None
    """The commit of a hub id."""
    train: str | None = None
    """The names of splits; by default those whose names are words for them."""
    validation: str | None = None
    test: str | None = None
    columns: Mapping[str, str] = {}
    """Columns of fields whose column has another name than the field, and of optional ones."""
    format: Format = "messages"
    """How a row holds a conversation, if the task's records are conversations."""


def read(section: DatasetsSource, fields: Mapping[str, Kind]) -> Reading:
    """A record per row, named split#row with the data set's name of the split.

    Raises:
        InputError: the library is not installed, or cannot read the folder; the data set has several configurations or
            splits and the recipe names none of them; a column is missing or does not fit; or there are no rows.
    """
    columns, conversation = columns_of(section.columns, fields, section.format)
    library()
    source = _folder(section)
    parts = _parts(section, source)
    named: dict[Split, str] = {split: name for split in SPLITS if (name := getattr(section, split))}
    splits, notes = chosen(section.path, list(parts), named)
    layout = RowLayout(fields, COLUMN_CHECKS, columns, conversation, {})
    counts = {split: [_count(layout, name, part) for part in parts[name]] for split, name in splits.items()}
    if not any(count != 0 for split in counts for count in counts[split]):
        raise InputError(f"data.source.path: {section.path}: its splits {', '.join(splits.values())} have no rows.")
    split_sizes = {split: total for split in counts if (total := sum(filter(None, counts[split])))}
    records = _records(layout, source, parts, splits)
    return Reading(sum(split_sizes.values()), records, tuple(notes), split_sizes)


def digest(section: DatasetsSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the folder's files, or the commit of a hub id; without the library."""
    if dataset_hub.is_hub_id(section.path):
        return sha256(canonical({"commit": dataset_hub.commit(section.path, section.revision)}))
    return files.digest(selection(section.path), fingerprints)


def _folder(section: DatasetsSource) -> Folder:
    if dataset_hub.is_hub_id(section.path):
        revision = dataset_hub.commit(section.path, section.revision)
        snapshot = dataset_hub.snapshot(section.path, revision, section.name)
        return folder(section.path, selection(str(snapshot), follow_links=True))  # the links of the hub's cache
    if section.revision is not None:
        raise InputError(f"data.source.revision: {section.path} is no hub id. Remove the key, or correct the path.")
    return folder(section.path, selection(section.path))


def _parts(section: DatasetsSource, source: Folder) -> Parts:
    if not saved_dataset.is_saved(source.root):
        return built_dataset.parts(source, section.name)
    if section.name is not None:
        raise InputError(f"data.source.name: {section.path} is a saved data set, without configurations. Remove it.")
    return saved_dataset.parts(source)


def _count(layout: RowLayout, split: str, part: Part) -> int | None:
    """The number of a part's rows, after a check of its columns; None if it is damaged, which _records reports."""
    count = 0
    for table in _tables(part):
        if isinstance(table, Exception):
            return None
        if count == 0:
            layout.check(_place(part, split), table.schema)
        count += table.num_rows
    return count


def _records(layout: RowLayout, source: Folder, parts: Parts, splits: Mapping[Split, str]) -> Iterator[Raw | Broken]:
    for split, name in splits.items():
        number = 0
        for part in parts[name]:
            for table in _tables(part):
                if isinstance(table, Exception):
                    reason = first_line(table) or type(table).__name__
                    yield Broken(_place(part, name), f"is damaged, or its rows from {name}#{number} on are ({reason})")
                else:
                    yield from _of_table(layout, source, part, table, split, f"{name}#", number)
                    number += table.num_rows


def _of_table(
    layout: RowLayout, source: Folder, part: Part, table: Any, split: Split, prefix: str, first: int
) -> Iterator[Raw | Broken]:
    from datasets import Features

    if missing := layout.required.difference(table.column_names):
        yield Broken(f"{prefix}{first}", f"has no column {min(missing)}, nor have the rows after it")
        return
    values = Values(layout, part.features or Features.from_arrow_schema(table.schema), source)
    rows = table.select([column for column in table.column_names if column in layout.names]).to_pylist()
    for number, row in enumerate(rows, first):
        try:
            converted = values.row(row)
        except ValueError as error:
            yield Broken(f"{prefix}{number}", str(error))
        else:
            yield layout.record(f"{prefix}{number}", converted, split, values.labels)


def _tables(part: Part) -> Iterator[Any]:
    """The tables of a part; the error of a damaged one is the last item."""
    try:
        yield from part.tables()
    except damage() as error:
        yield error


def _place(part: Part, split: str) -> str:
    return split if part.name == split else f"{part.name} (split {split})"


SOURCE = DataSource(DatasetsSource, None, read, digest)
