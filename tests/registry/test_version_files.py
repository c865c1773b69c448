"""What the digest of a version's files covers, on a real registry."""

from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline, connect
from understudy.errors import UnderstudyError
from understudy.registry.client import server_at
from understudy.registry.names import DIGEST
from understudy.registry.version_files import files_digest


def test_every_file_of_a_version_counts(pipeline: Pipeline) -> None:
    made = pipeline.register()
    assert made.version
    digest = (server_at(pipeline.uri).version_tags(made.name, made.version) or {})[DIGEST]
    place = Path(connect(pipeline.uri).get_model_version_download_uri(made.name, made.version).removeprefix("file://"))
    whole = files_digest(pipeline.uri, made.name, made.version, digest)
    assert whole == files_digest(pipeline.uri, made.name, made.version, digest), "the same files, the same digest"
    for name in ("MLmodel", "serving.py", "requirements.txt"):
        before = (place / name).read_bytes()
        (place / name).write_bytes(before + b"\n# more\n")
        assert files_digest(pipeline.uri, made.name, made.version, digest) != whole, name
        (place / name).write_bytes(before)
    (place / "sitecustomize.py").write_text("planted = True\n")
    assert files_digest(pipeline.uri, made.name, made.version, digest) != whole
    (place / "sitecustomize.py").unlink()
    assert files_digest(pipeline.uri, made.name, made.version, digest) == whole
    with pytest.raises(UnderstudyError, match=f"are not those of its digest {'0' * 64}"):
        files_digest(pipeline.uri, made.name, made.version, "0" * 64)
