import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.reviewers import KEYS, folder_of, private, public
from understudy.errors import InputError
from understudy.registry.promotion_files import (
    Promotion,
    check_approval,
    listing,
    policy,
    promotion_path,
    promotions,
    read,
    signing_key,
)

DIGEST, FILES = "d" * 64, "f" * 64
WISHED = Promotion(model="digits", version="7", digest=DIGEST, files=FILES)
PARTS = {"model": st.text(min_size=1, max_size=9).filter(str.isprintable), "version": st.integers(1, 999).map(str)}
PARTS |= dict.fromkeys(("digest", "files"), st.text("0123456789abcdef", min_size=64, max_size=64))
PROMOTIONS = st.builds(Promotion, **PARTS)


@given(PROMOTIONS, PROMOTIONS)
def test_an_approval_is_of_one_version_of_one_model_with_one_digest_and_its_files(
    first: Promotion, second: Promotion
) -> None:
    signed = first.approved_by("rita", KEYS["rita"])
    assert signed.is_approved_by("rita", KEYS["rita"].public_key())
    assert not signed.is_approved_by("rita", KEYS["sam"].public_key())
    assert not signed.is_approved_by("sam", KEYS["sam"].public_key())
    moved = second.model_copy(update={"approvals": signed.approvals})
    assert moved.is_approved_by("rita", KEYS["rita"].public_key()) == (second == first)


@given(PROMOTIONS)
def test_a_file_comes_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, promotion: Promotion) -> None:
    path = tmp_path_factory.mktemp("promotion") / "a.yaml"
    signed = promotion.approved_by("rita", KEYS["rita"])
    path.write_text(signed.text(), encoding="utf-8")
    assert read(path) == signed


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"version": None}, "version: Field required"),
        ({"model": "digits\u200b"}, "model: .* has invisible characters"),
        ({"version": "v7"}, "version: String should match"),
        ({"version": True}, "version: Input should be a valid string"),
        ({"digest": "abc"}, "digest: String should match"),
        ({"files": None}, "files: Field required"),
        ({"approvals": ["rita"]}, "approvals: "),
        ({"champion": "7"}, "champion: Extra inputs"),
    ],
)
def test_a_files_error_is_named(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    content = {**WISHED.model_dump(), **values}
    (tmp_path / "digits.yaml").write_text(
        json.dumps({name: value for name, value in content.items() if value is not None})
    )
    with pytest.raises(InputError, match=rf"digits\.yaml: {words}"):
        promotions(tmp_path)


def test_a_version_may_be_written_as_a_number(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(f"model: digits\nversion: 7\ndigest: {DIGEST}\nfiles: {FILES}\n")
    assert read(tmp_path / "digits.yaml") == WISHED


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "line 1: not YAML"),
        ("[" * 3000, "line 1: "),
        ("- a", "the file: "),
        ("", "the file: "),
        ("model: a\nmodel: b\n", "line 2: "),
        ("model: 2026-13-45\n", "version: Field required"),
        ("model: !!int x\n", "line 1: "),
    ],
)
def test_an_invalid_promotion_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "digits.yaml").write_text(content)
    with pytest.raises(InputError, match=words):
        promotions(tmp_path)


def test_a_model_is_promoted_in_one_file(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(WISHED.text())
    with pytest.raises(InputError, match=r"b\.yaml: digits is promoted in a\.yaml too"):
        promotions(tmp_path)


def test_a_file_that_would_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "digits.yml").write_text(WISHED.text())
    with pytest.raises(InputError, match=r"digits\.yml: it would not be read; call it digits\.yaml"):
        promotions(tmp_path)


@pytest.mark.parametrize(
    ("model", "name"),
    [("digits", "digits"), ("a b", "a-b-[0-9a-f]{6}"), ("policy", "policy-[0-9a-f]{6}"), ("../é", "-----[0-9a-f]{6}")],
)
def test_every_model_has_a_file_of_its_own(tmp_path: Path, model: str, name: str) -> None:
    folder = folder_of(tmp_path / "promotions")
    path = promotion_path(folder, model)
    assert path.parent == folder
    assert re.fullmatch(name, path.stem)
    path.write_text(WISHED.model_copy(update={"model": model}).text())
    assert promotion_path(folder, model) == path
    path.write_text(WISHED.model_copy(update={"model": "another"}).text())
    with pytest.raises(InputError, match="promotes another"):
        promotion_path(folder, model)
    path.unlink()
    path.symlink_to(tmp_path / "README")
    with pytest.raises(InputError, match="is a link"):
        promotion_path(folder, model)
    with pytest.raises(
        InputError, match=r"policy\.yaml: does not exist\. Run this in a clone .*docs/using/promotion\.md"
    ):
        promotion_path(tmp_path, model)


def test_without_a_folder_or_a_policy_nothing_is_promoted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        promotions(tmp_path / "none")
    with pytest.raises(
        InputError, match=r"policy\.yaml: does not exist\. Run this in a clone .*docs/using/promotion\.md"
    ):
        policy(tmp_path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"reviewers": {"rita": "ssh-rsa AAAA"}}, r"reviewers: rita: is no public key as in id_ed25519\.pub"),
        ({"reviewers": {"rita": public("rita"), "rob": public("rita")}}, "rita and rob have one key"),
        ({"reviewers": {"rita": public("rita"), "Rita": public("sam")}}, "Rita and rita look like one person"),
        ({"reviewers": {"rita\u200b": public("rita")}}, r"'rita\\u200b' is no reviewer's name"),
        ({"reviewers": {"r\u0456ta": public("rita")}}, r"'r\\u0456ta' is no reviewer's name"),
        ({"approvals": True}, "approvals: Input should be a valid integer"),
        ({"verdict_days": "inf"}, "verdict_days: Input should be a finite"),
        ({"approvals": 0}, "approvals: Input should be greater"),
        ({"verdict_days": -1}, "verdict_days: Input should be greater"),
        ({"quorum": 2}, "quorum: Extra inputs"),
    ],
)
def test_a_policys_error_is_named(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        policy(folder_of(tmp_path, **values))


# Keys and approvals


SMALL = [  # points of order 1, 4, 2 and 8
    bytes([1, *bytes(31)]),
    bytes(32),
    bytes([0xEC, *[0xFF] * 30, 0x7F]),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]


@pytest.mark.parametrize("point", SMALL, ids=["1", "4", "2", "8"])
def test_a_key_with_which_anybody_can_sign_is_refused(tmp_path: Path, point: bytes) -> None:
    key = Ed25519PublicKey.from_public_bytes(point).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    with pytest.raises(InputError, match="rita: this key is nobody's"):
        policy(folder_of(tmp_path, reviewers={"rita": key}))


def test_a_reviewers_key_may_have_a_passphrase(tmp_path: Path) -> None:
    prompts = list[str]()

    def passphrase() -> str:
        prompts.append("")
        return "open sesame"

    for secret in ("", "open sesame"):
        key = signing_key(private("rita", tmp_path, secret), passphrase)
        assert key.private_bytes_raw() == KEYS["rita"].private_bytes_raw()
    assert len(prompts) == 1
    with pytest.raises(InputError, match="cannot be read as a private key"):
        signing_key(private("rita", tmp_path, "another"), passphrase)


def test_an_invalid_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a private key"):
        signing_key(tmp_path / "none", str)
    path = tmp_path / "rsa"
    path.write_bytes(
        generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    with pytest.raises(InputError, match="is no Ed25519 key"):
        signing_key(path, str)


def test_an_approval_that_would_not_count_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    check_approval(WISHED.approved_by("rita", KEYS["rita"]), "rita", folder)
    with pytest.raises(InputError, match="reviewers: there is no eve, but rita, sam"):
        check_approval(WISHED.approved_by("eve", KEYS["eve"]), "eve", folder)
    with pytest.raises(InputError, match=r"reviewers\.sam: is another key's public half"):
        check_approval(WISHED.approved_by("sam", KEYS["eve"]), "sam", folder)


# The kustomization


def test_a_models_file_is_listed_once_beside_the_policy(tmp_path: Path) -> None:
    assert listing(tmp_path, "digits.yaml") == {}, "no kustomization, no list"
    path = tmp_path / "kustomization.yaml"
    path.write_text("configMapGenerator:\n  - name: a\n    files:\n      - policy.yaml\nimages: []\n")
    listings = listing(tmp_path, "digits.yaml")
    assert listings == {path: path.read_text().replace("policy.yaml\n", "policy.yaml\n      - digits.yaml\n")}
    path.write_text(listings[path])
    assert listing(tmp_path, "digits.yaml") == {}
    path.write_text("files: [policy.yaml]\n")
    with pytest.raises(InputError, match=r"lists policy\.yaml in no line of its own; add digits\.yaml"):
        listing(tmp_path, "digits.yaml")
