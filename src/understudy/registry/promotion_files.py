"""Promotions as files in Git: one per model, with the version that becomes champion and its approvals.

An approval is a signature (Ed25519, RFC 8032) of model, version and the digests of its files, by a key in the policy.
So a file proves itself: write access to promotions is not enough to promote. Write access to the policy, or to the
cluster's source of it, is: guard policy.yaml, kustomization.yaml and the folder job.
"""

import base64
import json
import re
from binascii import Error
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from understudy.errors import InputError
from understudy.recipe.yaml import dump, parse
from understudy.store.files import HEXADECIMAL, sha256

POLICY = "policy.yaml"
OTHERS = (POLICY, "kustomization.yaml")
"""The other files in the folder of promotions."""

NAME = re.compile("[A-Za-z0-9](?:[A-Za-z0-9._@+-]*[A-Za-z0-9])?")
"""A reviewer's name, in ASCII: names that look alike would count as two people."""
FORGED = base64.b64encode(bytes([1, *bytes(63)])).decode()
TRIED = 256
File = TypeVar("File", bound=BaseModel)


class Policy(BaseModel):
    """The reviewers, the required number of approvals, and the maximum age of a verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approvals: Annotated[int, Field(ge=1, strict=True)] = 2
    verdict_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    reviewers: dict[str, str] = {}
    """Public keys in OpenSSH's format (ssh-ed25519 AAAA... comment) by the reviewer's name."""

    @field_validator("reviewers")
    @classmethod
    def _check_keys(cls, value: dict[str, str]) -> dict[str, str]:
        first: dict[str, str] = {}
        for name in value:
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"{name!a} is no reviewer's name: letters and digits of ASCII, and . _ @ + - between them"
                )
            if (similar_name := first.setdefault(name.lower(), name)) != name:
                raise ValueError(f"{name} and {similar_name} look like one person; give one of them another name")
        keys = {name: _public_key(name, text).public_bytes_raw() for name, text in value.items()}
        for name, key in keys.items():
            same = [
                similar_name for similar_name, other_key in keys.items() if other_key == key and similar_name != name
            ]
            if same:
                raise ValueError(f"{name} and {same[0]} have one key; each person has a key of their own")
        return value

    def keys(self) -> dict[str, Ed25519PublicKey]:
        """The reviewers' keys."""
        return {name: _public_key(name, text) for name, text in self.reviewers.items()}


class Promotion(BaseModel):
    """The version of a model that becomes champion, and its approvals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[str, Field(min_length=1)]
    version: Annotated[str, Field(pattern="^[1-9][0-9]*$")]
    digest: Annotated[str, Field(pattern=f"^{HEXADECIMAL.pattern}$")]
    """The store's digest of the model, as in the version's tag."""
    files: Annotated[str, Field(pattern=f"^{HEXADECIMAL.pattern}$")]
    """The digest of all files of the version, including its serving script: version_files.py."""
    approvals: dict[str, str] = {}
    """Signatures (Base64) by the reviewer's name."""

    @field_validator("model")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError(f"{value!r} has invisible characters")
        return value

    @field_validator("version", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def statement(self) -> bytes:
        """The bytes that an approval signs."""
        return json.dumps(["understudy approval 1", self.model, self.version, self.digest, self.files]).encode()

    def is_approved_by(self, name: str, key: Ed25519PublicKey) -> bool:
        """Whether a reviewer's approval is a valid signature of this promotion by this key."""
        try:
            key.verify(base64.b64decode(self.approvals.get(name, ""), validate=True), self.statement)
        except (InvalidSignature, Error, ValueError):
            return False
        return True

    def approved_by(self, name: str, key: Ed25519PrivateKey) -> "Promotion":
        """A copy of the promotion with one more approval."""
        signature = base64.b64encode(key.sign(self.statement)).decode()
        return self.model_copy(update={"approvals": {**self.approvals, name: signature}})

    def text(self) -> str:
        """The file's content."""
        return dump(self.model_dump())


def promotions(folder: Path) -> dict[Path, Promotion]:
    """The promotions of a folder, by their files.

    Raises:
        InputError: a file is not a promotion, or two are for one model.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; it holds {POLICY} and a file per model")
    for stray in folder.glob("*.yml"):
        raise InputError(f"{stray}: it would not be read; call it {stray.stem}.yaml")
    by_file = {path: read(path) for path in sorted(folder.glob("*.yaml")) if path.name not in OTHERS}
    first: dict[str, Path] = {}
    for path, promotion in by_file.items():
        first_path = first.setdefault(promotion.model, path)
        if first_path != path:
            raise InputError(f"{path}: {promotion.model} is promoted in {first_path.name} too; leave one of the two")
    return by_file


def read(path: Path) -> Promotion:
    """The promotion in a file.

    Raises:
        InputError: it is not a promotion; the message names the field.
    """
    return _read(path, Promotion)


def policy(folder: Path) -> Policy:
    """The folder's policy.

    Raises:
        InputError: it is missing or invalid.
    """
    return _read(folder / POLICY, Policy)


def promotion_path(folder: Path, model: str) -> Path:
    """The path of a model's promotion; a model name that is no valid file name gets a piece of its digest.

    Raises:
        InputError: the folder has no policy, or the file is a link or of another model.
    """
    policy(folder)
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in model)
    if name != model or f"{name}.yaml" in OTHERS:
        name = f"{name}-{sha256(model.encode())[:6]}"
    path = folder / f"{name}.yaml"
    if path.is_symlink():
        raise InputError(f"{path}: is a link; put a file in its place")
    if path.exists() and (other_model := read(path).model) != model:
        raise InputError(f"{path}: promotes {other_model}; give that file another name")
    return path


def listing(folder: Path, name: str) -> dict[Path, str]:
    """The changed kustomization by its path, with a promotion's file in the ConfigMap; empty if no change is needed.

    Raises:
        InputError: the kustomization does not list promotions as manifests/promotions does.
    """
    path = folder / "kustomization.yaml"
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = [number for number, line in enumerate(lines) if line.strip().startswith("- ") and POLICY in line]
    if len(entries) != 1:
        raise InputError(
            f"{path}: it lists {POLICY} in no line of its own; add {name} to the ConfigMap's files by hand"
        )
    entry = lines[entries[0]].replace(POLICY, name)
    return {} if entry in lines else {path: "\n".join([*lines[: entries[0] + 1], entry, *lines[entries[0] + 1 :], ""])}


def check_approval(promotion: Promotion, name: str, folder: Path) -> None:
    """Check an approval against the policy.

    Raises:
        InputError: the policy does not name this reviewer, or has another key.
    """
    keys = policy(folder).keys()
    if name not in keys:
        raise InputError(f"{folder / POLICY}: reviewers: there is no {name}, but {', '.join(sorted(keys)) or 'nobody'}")
    if not promotion.is_approved_by(name, keys[name]):
        raise InputError(f"{folder / POLICY}: reviewers.{name}: is another key's public half; use that key's file")


def signing_key(path: Path, passphrase: Callable[[], str]) -> Ed25519PrivateKey:
    """A reviewer's private key, in ssh-keygen's format.

    Args:
        path: the key's file.
        passphrase: called if the key has one.

    Raises:
        InputError: the key cannot be read, or is not Ed25519.
    """
    try:
        content = path.read_bytes()
        try:
            key = load_ssh_private_key(content, None)
        except TypeError:
            key = load_ssh_private_key(content, passphrase().encode())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: cannot be read as a private key ({error})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: is no Ed25519 key; `ssh-keygen -t ed25519` makes one")
    return key


def _read(path: Path, kind: type[File]) -> File:
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"{path}: does not exist. Run this in a clone of the repository that has the promotions, or give their "
            "folder; docs/using/promotion.md says how to set one up"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if document.problems:
        raise InputError(f"{path}, line {document.problems[0].line}: {document.problems[0].text}")
    try:
        return kind.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(f"{path}: {location}: {first['msg'].removeprefix('Value error, ')}") from error


def _public_key(name: str, text: str) -> Ed25519PublicKey:
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{name}: is no public key as in id_ed25519.pub (ssh-ed25519 AAAA...)")
    if _is_anybodys(key):
        raise ValueError(f"{name}: this key is nobody's: anybody can sign with it; `ssh-keygen -t ed25519` makes one")
    return key


def _is_anybodys(key: Ed25519PublicKey) -> bool:
    """Whether a key is a point of small order: a forged signature is then valid for one of eight texts, or more.

    Libraries accept such keys (RFC 8032, 5.1.7, does not refuse them); the forged signature is valid for no other.
    """
    for number in range(TRIED):
        try:
            key.verify(base64.b64decode(FORGED), str(number).encode())
        except InvalidSignature:
            continue
        return True
    return False
