"""Whether the folder of cached logits that a job left is whole: a rank may have written anything.

The values cannot be checked without the teacher, nor are they decoded: that needs torch. All else is: sizes, checksums,
facts, statistics, and that there is no other file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from understudy.errors import UnderstudyError
from understudy.teachers.cache.layout import (
    INDEX,
    Description,
    open_part,
    part_files,
    read_block,
    read_description,
    read_tables,
    statistics,
)


def verified(folder: Path, facts: Mapping[str, Any]) -> Description:
    """The description of a complete folder with these facts.

    Raises:
        UnderstudyError: a file is missing, damaged or none of the format's, or a fact or a statistic differs.
    """
    description = read_description(folder)
    if not description.complete:
        raise UnderstudyError(f"{folder}: is not complete")
    if description.facts != dict(facts):
        given = sorted({*facts, *description.facts})
        differs = next(name for name in given if description.facts.get(name) != facts.get(name))
        raise UnderstudyError(f"{folder}: has {differs!a:.80} {description.facts.get(differs)!a:.80}")
    read_tables(folder, description)
    names = {"logits.json", "tables.json"}
    rows = [np.zeros(0, INDEX)]
    for number in range(description.parts):
        names |= {path.name for path in part_files(folder, number)}
        rows.append(_verified_rows(folder, number, description.in_part(number)))
    if others := sorted({path.name for path in folder.iterdir()} - names):
        raise UnderstudyError(f"{folder}: has a file {others[0]!a:.80} beyond its {description.parts} parts")
    if description.statistics != statistics(np.concatenate(rows)):
        raise UnderstudyError(f"{folder / 'logits.json'}: statistics: are not those of the parts")
    return description


def _verified_rows(folder: Path, number: int, examples: int) -> Any:
    """A part's index, once the checksum and the lengths of each block are found right."""
    part, path = open_part(folder, number, examples), part_files(folder, number)[0]
    blocks = np.memmap(path, np.uint8, mode="r")
    for example, row in enumerate(part.rows):
        try:
            read_block(np.asarray(blocks[part.starts[example] : part.starts[example + 1]]), row)
        except UnderstudyError as error:
            raise UnderstudyError(f"{path}: example {example} of part {number}: {error}") from None
    return part.rows
