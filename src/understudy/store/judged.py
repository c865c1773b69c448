"""The count of models judged on one test split for one registered model: a test split wears out.

Each has a folder named by its number, with an empty file named by its digest: `judged/KEY/7/DIGEST`. A model takes a
number by renaming a folder to it, which only one contender can do. It keeps it: a repeated run gets the same number.

In a model's folder the gate's rules by which it was judged are numbered alike: `judged/KEY/7/rules/2/DIGEST`, beside
`rules.json` and, once there is a verdict, an empty file `approved` or `rejected`. Folders of an older understudy have
no rules.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import disk_errors
from understudy.store.files import canonical, read_json, sha256

FOLDER = "judged"
RULES, CONTENTS = "rules", "rules.json"
APPROVED, REJECTED = "approved", "rejected"


@dataclass(frozen=True)
class Judged:
    """A model that is judged on a test split for a registered model."""

    store: Path
    """The store's folder."""
    name: str
    """The registered model's name."""
    split: str
    """The digest of the test examples."""
    digest: str
    """The model's digest."""

    @property
    def number(self) -> int:
        """Its number among those judged on the split, counted from 1; a new model is counted."""
        return _number(self._models, self.digest)

    def earlier_rejections(self, rules: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The rules by which it was rejected before it was first judged by these ones, which are recorded."""
        folder = self._rules
        number = _number(folder, sha256(canonical(rules)), {CONTENTS: canonical(rules)})
        earlier = [folder / str(before) for before in range(1, number)]
        contents = [read_json(path / CONTENTS) for path in earlier if (path / REJECTED).exists()]
        return [rejected for rejected in contents if rejected is not None]

    def record(self, rules: Mapping[str, Any], *, approved: bool) -> None:
        """Record the outcome of the verdict by these rules."""
        folder = self._rules
        number = _number(folder, sha256(canonical(rules)), {CONTENTS: canonical(rules)})
        with disk_errors(folder):
            (folder / str(number) / (APPROVED if approved else REJECTED)).touch()

    @property
    def _models(self) -> Path:
        return self.store / FOLDER / sha256(canonical({"name": self.name, "split": self.split}))

    @property
    def _rules(self) -> Path:
        return self._models / str(self.number) / RULES


def _number(folder: Path, digest: str, files: Mapping[str, bytes] = {}) -> int:
    """The number of a digest in a folder, counted from 1; a new one is added, with some files."""
    with disk_errors(folder):
        number = 1
        while (folder / str(number)).exists():
            if (folder / str(number) / digest).exists():
                return number
            number += 1
        temporary = folder / f".{secrets.token_hex(8)}"
        temporary.mkdir(parents=True)
        for name, content in {digest: b"", **files}.items():
            (temporary / name).write_bytes(content)
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
