"""Which versions may be promoted, and the results: on a real registry, with reviewers' real keys."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.registry.reviewers import KEYS, folder_of
from tests.registry.submitted import Pipeline, connect
from understudy.errors import InputError, UnderstudyError
from understudy.registry.client import server_at
from understudy.registry.names import CHAMPION, DIGEST, VERDICT
from understudy.registry.promotion_files import Promotion
from understudy.registry.promotions import DAY
from understudy.registry.promotions import apply as carry_out
from understudy.registry.tracking import TrackingServer, Version
from understudy.registry.version_files import files_digest

BOTH = ("rita", "sam")


def apply(folder: Path, server: TrackingServer, now: float, *, change: bool) -> list[str]:
    """As the command does."""
    uri = cast(Any, server)._uri
    return carry_out(
        folder,
        server,
        now,
        change=change,
        files=lambda promotion: files_digest(uri, promotion.model, promotion.version, promotion.digest),
    )


@pytest.fixture
def server(pipeline: Pipeline) -> TrackingServer:
    return server_at(pipeline.uri)


@pytest.fixture
def wished(pipeline: Pipeline, server: TrackingServer, tmp_path: Path) -> Callable[..., Promotion]:
    """Registers a student, and writes the file that promotes it; keywords replace fields before it is approved."""
    folder_of(tmp_path / "promotions")

    def write(*approvers: str, weights: bytes = b"student", **changes: Any) -> Promotion:
        registration = pipeline.register(run=pipeline.new_run(), weights=weights)
        assert registration.version
        digest = (server.version_tags(registration.name, registration.version) or {})[DIGEST]
        files = files_digest(pipeline.uri, registration.name, registration.version, digest)
        fields = {"model": registration.name, "version": registration.version, "digest": digest, "files": files}
        promotion = Promotion(**{**fields, **changes})
        for name in approvers:
            promotion = promotion.approved_by(name, KEYS[name])
        (tmp_path / "promotions" / "digits.yaml").write_text(promotion.text())
        return promotion

    return write


def test_two_people_promote_and_a_revert_rolls_back(
    wished: Callable[..., Promotion], server: TrackingServer, tmp_path: Path
) -> None:
    folder, file = tmp_path / "promotions", tmp_path / "promotions" / "digits.yaml"
    first = wished(*BOTH)
    messages = apply(folder, server, time.time(), change=False)
    assert messages == [f"{first.model}: version 1 is to be the champion; it had none"]
    assert CHAMPION not in server.aliases(first.model), "a check changes nothing"
    assert apply(folder, server, time.time(), change=True) == [
        f"{first.model}: version 1 is the champion now; it had none"
    ]
    assert apply(folder, server, time.time(), change=True) == [], "again is without effect"
    before = file.read_text()
    second = wished(*BOTH, weights=b"better")
    assert apply(folder, server, time.time(), change=True) == [
        f"{second.model}: version 2 is the champion now; it was version 1"
    ]
    file.write_text(before)
    apply(folder, server, time.time(), change=True)
    assert server.aliases(first.model)[CHAMPION] == "1"


@pytest.mark.parametrize(
    ("approvers", "changes", "words"),
    [
        ((), {}, "it is approved by nobody, and the policy asks for 2 people"),
        (("rita",), {}, "it is approved by rita alone, and the policy asks for 2 people"),
        (("rita", "eve"), {}, r"eve approved it, whom policy\.yaml does not name as a reviewer"),
        (BOTH, {"version": "99"}, "the registry has no version 99 of .*, but 1"),
        (BOTH, {"model": "nobody's"}, "the registry has no version 1 of nobody's, but none at all"),
        (BOTH, {"digest": "0" * 64}, f"has the digest [0-9a-f]{{64}}, the file says {'0' * 64}"),
    ],
    ids=["nobody", "alone", "stranger", "no-version", "no-model", "digest"],
)
def test_a_promotion_against_the_policy_is_refused_with_the_reason(
    wished: Callable[..., Promotion],
    server: TrackingServer,
    tmp_path: Path,
    approvers: tuple[str, ...],
    changes: dict[str, str],
    words: str,
) -> None:
    promotion = wished(*approvers, **changes)
    with pytest.raises(InputError, match=words):
        apply(tmp_path / "promotions", server, time.time(), change=True)
    assert CHAMPION not in server.aliases(promotion.model)


def test_an_approval_of_the_version_before_is_none_of_the_next(
    wished: Callable[..., Promotion], server: TrackingServer, tmp_path: Path
) -> None:
    first = wished(*BOTH)
    second = wished(weights=b"better")
    moved = second.model_copy(update={"approvals": first.approvals})
    (tmp_path / "promotions" / "digits.yaml").write_text(moved.text())
    with pytest.raises(InputError, match="the approval of rita is for other contents") as refused:
        apply(tmp_path / "promotions", server, time.time(), change=True)
    assert "by nobody" in str(refused.value)


def test_one_who_approves_twice_is_one(
    wished: Callable[..., Promotion], server: TrackingServer, tmp_path: Path
) -> None:
    promotion = wished("rita").approved_by("rita", KEYS["rita"])
    doubled = promotion.model_copy(update={"approvals": {**promotion.approvals, "sam": promotion.approvals["rita"]}})
    (tmp_path / "promotions" / "digits.yaml").write_text(doubled.text())
    with pytest.raises(InputError, match="the approval of sam is for other contents, or by another key"):
        apply(tmp_path / "promotions", server, time.time(), change=True)


def test_a_verdict_expires_unless_the_version_was_the_champion(
    wished: Callable[..., Promotion], pipeline: Pipeline, server: TrackingServer, tmp_path: Path
) -> None:
    promotion, later = wished(*BOTH), time.time() + 31 * DAY
    with pytest.raises(InputError, match="was registered 31 days ago, and the policy allows 30"):
        apply(tmp_path / "promotions", server, later, change=True)
    client = connect(pipeline.uri)
    client.set_model_version_tag(promotion.model, promotion.version, "understudy.promoted", "by rita")
    assert apply(tmp_path / "promotions", server, later, change=True)


class Older:
    """A registry whose first version was made a month before."""

    def __init__(self, server: TrackingServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def versions(self) -> list[Version]:
        versions = self._server.versions()
        return [
            replace(version, created=version.created - 31 * DAY) if version.number == "1" else version
            for version in versions
        ]


def test_a_model_that_is_registered_once_more_is_no_younger(
    wished: Callable[..., Promotion], pipeline: Pipeline, server: TrackingServer, tmp_path: Path
) -> None:
    older, promotion, client = cast(TrackingServer, Older(server)), wished(), connect(pipeline.uri)
    first = client.get_model_version(promotion.model, "1")
    client.create_model_version(promotion.model, first.source, first.run_id, tags=first.tags)
    again = Promotion(**{**promotion.model_dump(), "version": "2", "approvals": {}})
    for name in BOTH:
        again = again.approved_by(name, KEYS[name])
    (tmp_path / "promotions" / "digits.yaml").write_text(again.text())
    with pytest.raises(InputError, match=r"version 2 of .* was registered 31 days ago, and the policy allows 30"):
        carry_out(tmp_path / "promotions", older, time.time(), change=True, files=lambda promotion: promotion.files)
    wished(*BOTH, weights=b"better")
    assert carry_out(tmp_path / "promotions", older, time.time(), change=True, files=lambda promotion: promotion.files)


def test_changed_files_of_a_champion_are_reported(
    wished: Callable[..., Promotion], pipeline: Pipeline, server: TrackingServer, tmp_path: Path
) -> None:
    promotion, folder = wished(*BOTH), tmp_path / "promotions"
    apply(folder, server, time.time(), change=True)
    assert not [line for line in apply(folder, server, time.time(), change=False) if promotion.model in line]
    script = _script(pipeline.uri, promotion.model, promotion.version)
    script.write_text(f"{script.read_text()}\nprint('planted')\n")
    message = f"{promotion.model}: the files of version 1 are not those that were approved"
    assert message in apply(folder, server, time.time(), change=False)
    with pytest.raises(UnderstudyError, match="the files of version 1 are not those that were approved"):
        apply(folder, server, time.time(), change=True)


@pytest.mark.parametrize(
    ("verdict", "words"), [("rejected", "was rejected"), ("", "was not judged"), ("\x1b[2J\n", r"was \x1b[2J\n")]
)
def test_a_version_that_the_gate_rejected_is_refused(
    wished: Callable[..., Promotion],
    pipeline: Pipeline,
    server: TrackingServer,
    tmp_path: Path,
    verdict: str,
    words: str,
) -> None:
    promotion = wished(*BOTH)
    connect(pipeline.uri).set_model_version_tag(promotion.model, promotion.version, VERDICT, verdict)
    with pytest.raises(InputError, match=f"{re.escape(words)} by the gate"):
        apply(tmp_path / "promotions", server, time.time(), change=True)


def test_nothing_moves_while_one_file_is_refused(
    wished: Callable[..., Promotion], server: TrackingServer, tmp_path: Path
) -> None:
    promotion = wished(*BOTH)
    another = promotion.model_copy(update={"model": "another"})
    (tmp_path / "promotions" / "another.yaml").write_text(another.text())
    with pytest.raises(InputError, match=r"another\.yaml: the registry has no version") as refused:
        apply(tmp_path / "promotions", server, time.time(), change=True)
    assert "digits.yaml" not in str(refused.value)
    assert CHAMPION not in server.aliases(promotion.model)


class Swapped:
    """A registry whose version gets another digest just before the alias moves."""

    def __init__(self, server: TrackingServer, uri: str) -> None:
        self._server, self._client = server, connect(uri)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        if version == "2":
            self._client.set_model_version_tag(name, version, DIGEST, "e" * 64)
        self._server.set_alias(name, alias, version)


@pytest.mark.parametrize("first", [True, False], ids=["no-champion", "a-champion"])
def test_a_digest_that_changes_while_it_is_promoted_takes_the_alias_back(
    wished: Callable[..., Promotion], pipeline: Pipeline, server: TrackingServer, tmp_path: Path, first: bool
) -> None:
    wished(*BOTH)
    if not first:
        apply(tmp_path / "promotions", server, time.time(), change=True)
    second = wished(*BOTH, weights=b"better")
    swapped = cast(TrackingServer, Swapped(server, pipeline.uri))
    with pytest.raises(UnderstudyError, match=r"the digest of version 2 were changed(.|\n)*the alias is where it was"):
        apply(tmp_path / "promotions", swapped, time.time(), change=True)
    assert server.aliases(second.model).get(CHAMPION) == (None if first else "1")


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
def test_a_failure_of_the_second_check_takes_the_alias_back(
    wished: Callable[..., Promotion], server: TrackingServer, tmp_path: Path, kind: type[BaseException]
) -> None:
    promotion, looks = wished(*BOTH), list[str]()

    def files(promotion: Promotion) -> str:
        looks.append(promotion.version)
        if len(looks) == 2:
            raise kind
        return promotion.files

    with pytest.raises(kind):
        carry_out(tmp_path / "promotions", server, time.time(), change=True, files=files)
    assert CHAMPION not in server.aliases(promotion.model)


def _script(uri: str, name: str, version: str) -> Path:
    """The script that serves a version, in the registry."""
    address = connect(uri).get_model_version_download_uri(name, version)
    [path] = Path(address.removeprefix("file://")).rglob("serving.py")
    return path


def test_a_version_whose_files_were_changed_after_the_approval_never_becomes_the_champion(
    wished: Callable[..., Promotion], pipeline: Pipeline, server: TrackingServer, tmp_path: Path
) -> None:
    promotion = wished(*BOTH)
    script = _script(pipeline.uri, promotion.model, promotion.version)
    before = script.read_text()
    script.write_text(f"{before}\nprint('planted')\n")
    moves = Moves(server)
    with pytest.raises(UnderstudyError, match="the files of version 1 were changed since they were approved"):
        apply(tmp_path / "promotions", cast(TrackingServer, moves), time.time(), change=True)
    assert not moves.made, "nobody could have loaded it"
    script.write_text(before)
    [weights] = script.parent.rglob("model.safetensors")
    weights.write_bytes(b"planted")
    with pytest.raises(UnderstudyError, match="are not those of its digest"):
        apply(tmp_path / "promotions", server, time.time(), change=True)


class Moves:
    """A registry that writes down which versions get an alias."""

    def __init__(self, server: TrackingServer) -> None:
        self._server, self.made = server, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        self.made.append(version)
        self._server.set_alias(name, alias, version)


def test_a_champion_without_a_file_is_reported_and_left_alone(
    wished: Callable[..., Promotion], pipeline: Pipeline, server: TrackingServer, tmp_path: Path
) -> None:
    promotion, client = wished(*BOTH), connect(pipeline.uri)
    apply(tmp_path / "promotions", server, time.time(), change=True)
    (tmp_path / "promotions" / "digits.yaml").unlink()
    client.create_registered_model("a\n\x1b[2Jforged")
    client.create_model_version("a\n\x1b[2Jforged", client.get_model_version(promotion.model, "1").source)
    client.set_registered_model_alias("a\n\x1b[2Jforged", CHAMPION, "1")
    messages = apply(tmp_path / "promotions", server, time.time(), change=True)
    assert f"{promotion.model}: version 1 is the champion, and no file promotes it" in messages
    assert r"a\n\x1b[2Jforged: version 1 is the champion, and no file promotes it" in messages
    client.delete_registered_model("a\n\x1b[2Jforged")
    assert server.aliases(promotion.model)[CHAMPION] == "1"
