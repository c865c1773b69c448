"""A bucket, or any other place that fsspec knows: files below an address, and its errors in words."""

from pathlib import Path
from typing import Any

import fsspec

from understudy.errors import InputError, UnderstudyError


class Bucket:
    """Files by their paths below an address. As a context it turns what the other side says into an UnderstudyError.

    Args:
        url: s3://BUCKET/PREFIX, or anything else that fsspec knows.

    Raises:
        InputError: fsspec does not know such an address.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise InputError(f"{url}: {error}") from error

    def __enter__(self) -> "Bucket":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, BotoCoreError | ClientError | FileNotFoundError | PermissionError):
            words = " ".join(str(error).split()).rstrip(".")
            raise UnderstudyError(
                f"{self.url}: {words}; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for S3 other than AWS, "
                "AWS_ENDPOINT_URL say how to get in"
            ) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ready(self, name: str) -> str:
        """A path that can be written to."""
        path = self._path(name)
        if "s3" not in self._files.protocol:  # there it would make a bucket out of a mistyped name
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        return path

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        path = self._path(name)
        return int(self._files.size(path)) if self._files.exists(path) else None

    def read(self, name: str) -> bytes | None:
        """A small file whole; None when there is none."""
        try:
            return bytes(self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a small file."""
        self._files.pipe_file(self._ready(name), content)

    def put(self, source: Path, name: str) -> None:
        """Make or replace a file with one from here."""
        self._files.put_file(str(source), self._ready(name))

    def get(self, name: str, target: Path) -> bool:
        """Copy a file to here; whether there is one."""
        try:
            self._files.get_file(self._path(name), str(target))
        except FileNotFoundError:
            return False
        return True
