"""Reviewers with keys of their own, a folder with the policy that names them, and a server's key."""

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

KEYS = {name: Ed25519PrivateKey.generate() for name in ("rita", "sam", "eve")}


def key_pair() -> tuple[str, str]:
    """A private Ed25519 key and its public one, in PEM."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def public(name: str) -> str:
    """A reviewer's public key as OpenSSH writes it."""
    text = KEYS[name].public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return f"{text} {name}@example.com"


def private(name: str, folder: Path, passphrase: str = "") -> Path:
    """A file with a reviewer's private key."""
    how = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    path = folder / f"{name}.key"
    path.write_bytes(KEYS[name].private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, how))
    return path


def folder_of(path: Path, **policy: Any) -> Path:
    """A folder for promotions; rita and sam are reviewers unless the policy says otherwise."""
    path.mkdir(parents=True, exist_ok=True)
    content = {"reviewers": {name: public(name) for name in ("rita", "sam")}, **policy}
    (path / "policy.yaml").write_text(json.dumps(content))
    return path
