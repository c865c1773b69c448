"""A bucket, or any other storage that fsspec supports: files below an address, with readable errors."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import fsspec

from understudy.errors import InputError, UnderstudyError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # errors of a local disk, never of a bucket
HINT = "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL for S3 other than AWS"


class Bucket:
    """Files by their paths below an address. Its errors are raised as UnderstudyError.

    Args:
        url: s3://BUCKET/PREFIX, or any other URL that fsspec supports.

    Raises:
        InputError: the URL is no address, or contains credentials.
    """

    def __init__(self, url: str) -> None:
        scheme, separator, location = url.partition("://")
        if not separator or not location:
            raise InputError(f"{url}: is not the address of a bucket; write s3://BUCKET/PREFIX, or file:///FOLDER")
        if "@" in urlsplit(url).netloc:
            raise InputError(f"{scheme}://...: put credentials into the environment, not into a bucket's address")
        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise InputError(f"{url}: {error}") from error

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """Convert errors: s3fs raises most S3 errors as an OSError of some number. The caller handles missing files."""
        from aiohttp import ClientError as Broken
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, Broken, ClientError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise UnderstudyError(f"{self.url}: {reason}{HINT if self.url.startswith('s3:') else ''}") from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ready(self, name: str) -> str:
        """A path whose folder exists."""
        path = self._path(name)
        if "s3" not in self._files.protocol:  # on S3 it would create a bucket for a mistyped name
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        return path

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        with self._readable_errors():
            path = self._path(name)
            return int(self._files.size(path)) if self._files.exists(path) else None

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None when there is none."""
        with self._readable_errors():
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a small file."""
        with self._readable_errors():
            self._files.pipe_file(self._ready(name), content)

    def put(self, source: Path, name: str) -> None:
        """Create or replace a file with a local one."""
        with self._readable_errors():
            self._files.put_file(str(source), self._ready(name))

    def listed(self, folder: str) -> dict[str, tuple[int, str]]:
        """Size and last change of all files below a folder, or below the address for "", by their paths there."""
        root = self._path(folder).rstrip("/")
        with self._readable_errors():
            self._files.invalidate_cache()  # another process may have written
            if not self._files.exists(root):
                return {}
            details = self._files.find(root, detail=True)
        return {
            name.removeprefix(f"{root}/"): (
                int(detail["size"]),
                str(detail.get("LastModified", detail.get("mtime", ""))),
            )
            for name, detail in details.items()
        }

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        with self._readable_errors():
            if names:
                self._files.rm([self._path(name) for name in names])

    def get(self, name: str, target: Path) -> bool:
        """Copy a file to a local path; False if there is none.

        Raises:
            FileNotFoundError: the local folder is gone.
        """
        try:
            with self._readable_errors():
                self._files.get_file(self._path(name), str(target))
        except UnderstudyError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            if not target.parent.is_dir():
                raise error.__cause__ from None
            return False
        return True
