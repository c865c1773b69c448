from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.errors import Fenced, InputError, UnderstudyError
from understudy.store import Store
from understudy.store.bucket import Bucket
from understudy.store.files import sha256
from understudy.store.objects import Manifest
from understudy.store.transfer import pull, push


def silent(name: str) -> None:
    del name


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'bucket'}"


def store(folder: Path) -> Store:
    return Store(folder / "store")


def published(home: Store, staged: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(content)
    return home.objects.publish(staged, "model", {"examples": "e" * 64}, {"parameters": 3})


FILES = {"model.safetensors": b"weights", "code/net.py": b"pass", "empty": b""}


def test_pulling_gives_the_pushed_object(tmp_path: Path, bucket: str) -> None:
    local, remote = store(tmp_path / "here"), store(tmp_path / "there")
    digest = published(local, tmp_path / "staged", FILES)
    assert push(local, digest, bucket, silent) == pull(remote, digest, bucket, silent) == 11
    assert remote.objects.damage(digest, thorough=True) == []
    assert remote.objects.manifest(digest) == local.objects.manifest(digest)
    assert push(local, digest, bucket, silent) == pull(remote, digest, bucket, silent) == 0


@given(cut=st.integers(0, 3))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_interrupted_transfer_continues(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    tmp_path = tmp_path_factory.mktemp("transfer")
    bucket, local, remote = f"file://{tmp_path / 'bucket'}", store(tmp_path / "here"), store(tmp_path / "there")
    digest = published(local, tmp_path / "staged", FILES)

    def breaks_off(after: int, log: list[str]) -> Callable[[str], None]:
        def tell(name: str) -> None:
            if len(log) == after:
                raise KeyboardInterrupt
            log.append(name)

        return tell

    for copy, home in ((push, local), (pull, remote)):
        first: list[str] = []
        second: list[str] = []
        try:
            copy(home, digest, bucket, breaks_off(cut, first))
        except KeyboardInterrupt:
            copy(home, digest, bucket, second.append)
        assert sorted(first + second) == sorted(FILES)
    assert remote.objects.damage(digest, thorough=True) == []


def test_an_object_that_is_not_whole_there_is_no_object(tmp_path: Path, bucket: str) -> None:
    local = store(tmp_path / "here")
    digest = published(local, tmp_path / "staged", FILES)
    push(local, digest, bucket, silent)
    next((tmp_path / "bucket").rglob("manifest.json")).unlink()
    remote = store(tmp_path / "there")
    with pytest.raises(InputError, match="there is no complete object"):
        pull(remote, digest, bucket, silent)
    assert list((remote.folder / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("model.safetensors", "is damaged or missing there; remove"), ("manifest.json", "there is no complete object")],
)
def test_damage_in_the_bucket_is_found_and_mended(tmp_path: Path, bucket: str, name: str, message: str) -> None:
    local, remote = store(tmp_path / "here"), store(tmp_path / "there")
    digest = published(local, tmp_path / "staged", FILES)
    push(local, digest, bucket, silent)
    path = next((tmp_path / "bucket").rglob(name))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(UnderstudyError, match=message):
        pull(remote, digest, bucket, silent)
    assert remote.objects.manifest(digest) is None
    if name != "manifest.json":
        path.unlink()  # as the message says; of a manifest no more is needed than to push again
    push(local, digest, bucket, silent)
    pull(remote, digest, bucket, silent)
    assert remote.objects.damage(digest, thorough=True) == []


def test_the_loser_of_a_fetch_says_so_and_leaves_nothing(tmp_path: Path, bucket: str) -> None:
    local, remote = store(tmp_path / "here"), store(tmp_path / "there")
    digest = published(local, tmp_path / "staged", FILES)
    push(local, digest, bucket, silent)
    work = remote.folder / "work" / digest

    def take_over(name: str) -> None:
        del name
        for folder in list(work.iterdir()):
            folder.rename(work / "7.another")

    with pytest.raises(Fenced, match="another process has taken over"):
        pull(remote, digest, bucket, take_over)
    assert [folder.name for folder in work.iterdir()] == ["7.another"]


def test_a_damaged_object_is_not_sent(tmp_path: Path, bucket: str) -> None:
    local = store(tmp_path / "here")
    digest = published(local, tmp_path / "staged", FILES)
    (local.objects.path(digest) / "empty").write_bytes(b"!")
    with pytest.raises(UnderstudyError, match="a damaged object is not sent"):
        push(local, digest, bucket, silent)
    assert not (tmp_path / "bucket").exists()


def test_an_invalid_address_is_an_error(tmp_path: Path) -> None:
    local = store(tmp_path / "here")
    digest = published(local, tmp_path / "staged", FILES)
    with pytest.raises(InputError, match="nowhere://bucket: "):
        push(local, digest, "nowhere://bucket", silent)


@pytest.mark.parametrize("url", ["bucket/prefix", "s3:/bucket", "s3://"])
def test_a_string_that_is_no_address_does_not_become_a_local_folder(tmp_path: Path, url: str) -> None:
    local = store(tmp_path / "here")
    digest = published(local, tmp_path / "staged", FILES)
    with pytest.raises(InputError, match="is not the address of a bucket; write s3://BUCKET/PREFIX"):
        push(local, digest, url, silent)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="put credentials into the environment") as refused:
        Bucket("sftp://ann:hunter2@host/folder")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("error", [OSError(16, "reduce your request rate"), TimeoutError(), PermissionError("no")])
def test_a_buckets_error_has_its_address(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    local = store(tmp_path / "here")
    digest = published(local, tmp_path / "staged", FILES)

    def refuses(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.put_file", refuses)
    with pytest.raises(UnderstudyError, match=rf"^{bucket}: "):
        push(local, digest, bucket, silent)


@pytest.mark.parametrize(
    "name", ["/etc/planted", "../planted", "a/../../planted", "a//planted", "a\0b", "", ".", "manifest.json"]
)
def test_a_bucket_writes_nothing_outside_of_an_object(tmp_path: Path, bucket: str, name: str) -> None:
    remote, content = store(tmp_path / "there"), b"planted"
    manifest = Manifest("model", ((name, len(content), sha256(content)),))
    digest = sha256(manifest.encode())
    folder = tmp_path / "bucket" / "objects" / digest[:2] / digest
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(manifest.encode())
    with pytest.raises(UnderstudyError, match="has a file outside its folder"):
        pull(remote, digest, bucket, silent)
    assert not list(tmp_path.rglob("planted"))


@pytest.mark.parametrize("content", [b"[]", Manifest("model", ((5, 1, "ab"),)).encode()])  # type: ignore[arg-type]
def test_a_manifest_that_is_none_is_damaged(tmp_path: Path, bucket: str, content: bytes) -> None:
    digest = sha256(content)
    folder = tmp_path / "bucket" / "objects" / digest[:2] / digest
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(UnderstudyError, match="damaged or missing there"):
        pull(store(tmp_path / "there"), digest, bucket, silent)


def test_files_with_a_dot_come_back_too(tmp_path: Path, bucket: str) -> None:
    local, remote = store(tmp_path / "here"), store(tmp_path / "there")
    digest = published(local, tmp_path / "staged", {".hidden": b"h", "code/.hidden": b"c", "part": b"p"})
    push(local, digest, bucket, silent)
    pull(remote, digest, bucket, silent)
    assert remote.objects.damage(digest, thorough=True) == []


def test_a_connection_that_breaks_leaves_no_half_of_a_file(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, remote = store(tmp_path / "here"), store(tmp_path / "there")
    digest = published(local, tmp_path / "staged", {"model.safetensors": bytes(10**6)})
    push(local, digest, bucket, silent)

    def breaks(self: Bucket, name: str, target: Path) -> bool:
        target.write_bytes(bytes(9 * 10**5))
        raise UnderstudyError("the connection was lost")

    with monkeypatch.context() as broken:
        broken.setattr(Bucket, "get", breaks)
        for _ in range(3):
            with pytest.raises(UnderstudyError, match="was lost"):
                pull(remote, digest, bucket, silent)
    assert sum(path.stat().st_size for path in remote.folder.rglob("*") if path.is_file()) < 10**5
    pull(remote, digest, bucket, silent)
    assert remote.objects.damage(digest, thorough=True) == []
