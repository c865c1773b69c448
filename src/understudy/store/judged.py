"""The count of models judged on one test split for one registered model: a test split wears out.

Each has a folder named by its number, with an empty file named by its digest: `judged/KEY/7/DIGEST`. A model takes a
number by renaming a folder to it, which only one contender can do. It keeps it: a repeated run gets the same number.
"""

import errno
import os
import secrets
import shutil
from pathlib import Path

from understudy.errors import disk_errors
from understudy.store.files import canonical, sha256

FOLDER = "judged"


def number_of(store: Path, name: str, split: str, digest: str) -> int:
    """A model's number among those judged on a split, counted from 1; a new model is counted.

    Args:
        store: the store's folder.
        name: the registered model's name.
        split: the digest of the test examples.
        digest: the model's digest.
    """
    folder = store / FOLDER / sha256(canonical({"name": name, "split": split}))
    with disk_errors(folder):
        number = 1
        while (folder / str(number)).exists():
            if (folder / str(number) / digest).exists():
                return number
            number += 1
        temporary = folder / f".{secrets.token_hex(8)}"
        temporary.mkdir(parents=True)
        (temporary / digest).touch()
        while not _rename_if_absent(temporary, folder / str(number)):
            if (folder / str(number) / digest).exists():
                shutil.rmtree(temporary)
                break
            number += 1
    return number


def _rename_if_absent(temporary: Path, target: Path) -> bool:
    try:
        os.rename(temporary, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # which one differs between file systems
            raise
        return False
    return True
