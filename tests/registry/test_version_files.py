"""What the digest of a version's files covers, on a real registry."""

from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline, connect
from understudy.errors import UnderstudyError
from understudy.registry.client import server_at
from understudy.registry.names import DIGEST
from understudy.registry.version_files import MANIFEST, MARK, files_digest, intact_manifest
from understudy.store.files import sha256


def test_every_file_of_a_version_counts(pipeline: Pipeline) -> None:
    made = pipeline.register()
    assert made.version
    digest = (server_at(pipeline.uri).version_tags(made.name, made.version) or {})[DIGEST]
    place = Path(connect(pipeline.uri).get_model_version_download_uri(made.name, made.version).removeprefix("file://"))
    before_all = files_digest(pipeline.uri, made.name, made.version, digest)
    assert before_all == files_digest(pipeline.uri, made.name, made.version, digest), "the same files, the same digest"
    for name in ("MLmodel", "serving.py", "requirements.txt"):
        before = (place / name).read_bytes()
        (place / name).write_bytes(before + b"\n# more\n")
        assert files_digest(pipeline.uri, made.name, made.version, digest) != before_all, name
        (place / name).write_bytes(before)
    (place / "code").mkdir(exist_ok=True)
    for added in ("sitecustomize.py", f"code/{MARK}"):  # the second MLflow's client makes itself, at the top alone
        (place / added).write_text("planted = True\n")
        assert files_digest(pipeline.uri, made.name, made.version, digest) != before_all
        (place / added).unlink()
    assert files_digest(pipeline.uri, made.name, made.version, digest) == before_all
    with pytest.raises(UnderstudyError, match=f"are not those of its digest {'0' * 64}"):
        files_digest(pipeline.uri, made.name, made.version, "0" * 64)


@pytest.mark.parametrize("text", ["[]", "{}", "1", '{"files": 1}', "{", "[" * 100_000, "\xff"])
def test_what_is_no_manifest_is_no_model(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("latin-1"))
    assert intact_manifest(tmp_path, sha256((tmp_path / MANIFEST).read_bytes())) is None


def test_a_file_more_is_another_model(pipeline: Pipeline) -> None:
    made = pipeline.register()
    assert made.version
    digest = (server_at(pipeline.uri).version_tags(made.name, made.version) or {})[DIGEST]
    place = Path(connect(pipeline.uri).get_model_version_download_uri(made.name, made.version).removeprefix("file://"))
    folder = place / "artifacts" / digest
    assert intact_manifest(folder, digest)
    (folder / "evil.py").write_text("")
    assert intact_manifest(folder, digest) is None
