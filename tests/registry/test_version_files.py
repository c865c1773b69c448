"""The files that a version's digest covers, on a real registry."""

from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline, connect
from understudy.errors import UnderstudyError
from understudy.registry.client import server_at
from understudy.registry.names import DIGEST
from understudy.registry.version_files import MANIFEST, MARK, files_digest, intact_manifest
from understudy.store.files import sha256


def test_every_file_of_a_version_counts(pipeline: Pipeline) -> None:
    registration = pipeline.register()
    assert registration.version
    digest = (server_at(pipeline.uri).version_tags(registration.name, registration.version) or {})[DIGEST]
    version_folder = Path(
        connect(pipeline.uri)
        .get_model_version_download_uri(registration.name, registration.version)
        .removeprefix("file://")
    )
    before_all = files_digest(pipeline.uri, registration.name, registration.version, digest)
    assert before_all == files_digest(pipeline.uri, registration.name, registration.version, digest), (
        "the same files, the same digest"
    )
    for name in ("MLmodel", "serving.py", "requirements.txt"):
        before = (version_folder / name).read_bytes()
        (version_folder / name).write_bytes(before + b"\n# more\n")
        assert files_digest(pipeline.uri, registration.name, registration.version, digest) != before_all, name
        (version_folder / name).write_bytes(before)
    (version_folder / "code").mkdir(exist_ok=True)
    for added in ("sitecustomize.py", f"code/{MARK}"):  # the second MLflow's client makes itself, at the top alone
        (version_folder / added).write_text("planted = True\n")
        assert files_digest(pipeline.uri, registration.name, registration.version, digest) != before_all
        (version_folder / added).unlink()
    assert files_digest(pipeline.uri, registration.name, registration.version, digest) == before_all
    with pytest.raises(UnderstudyError, match=f"are not those of its digest {'0' * 64}"):
        files_digest(pipeline.uri, registration.name, registration.version, "0" * 64)


@pytest.mark.parametrize("text", ["[]", "{}", "1", '{"files": 1}', "{", "[" * 100_000, "\xff"])
def test_an_invalid_manifest_is_no_model(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("latin-1"))
    assert intact_manifest(tmp_path, sha256((tmp_path / MANIFEST).read_bytes())) is None


def test_a_file_more_is_another_model(pipeline: Pipeline) -> None:
    registration = pipeline.register()
    assert registration.version
    digest = (server_at(pipeline.uri).version_tags(registration.name, registration.version) or {})[DIGEST]
    version_folder = Path(
        connect(pipeline.uri)
        .get_model_version_download_uri(registration.name, registration.version)
        .removeprefix("file://")
    )
    folder = version_folder / "artifacts" / digest
    assert intact_manifest(folder, digest)
    (folder / "evil.py").write_text("")
    assert intact_manifest(folder, digest) is None
