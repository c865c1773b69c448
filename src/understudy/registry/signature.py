"""The signature of a promotion: the MLflow server signs what was promoted, and whoever loads a champion checks it.

The server's key is Ed25519 (RFC 8032) and the server's alone. So who writes into the registry's database or bucket, or
stands between, cannot make a champion: what is signed names model, version and digest, and the digest its files.
"""

import base64
import json
import os
from binascii import Error

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from understudy.errors import InputError

SIGNATURE = "understudy.signature"
"""The tag of a promoted version; only the server sets it."""
PRIVATE, PUBLIC = "UNDERSTUDY_PROMOTION_KEY", "UNDERSTUDY_PROMOTION_PUBLIC_KEY"
"""Variables with a key in PEM: of the server, and of whoever loads a champion."""


def signing_key() -> Ed25519PrivateKey | None:
    """The server's key; None where it has none, and promotions are not signed.

    Raises:
        InputError: it is no such key. The message does not repeat it.
    """
    text = os.environ.get(PRIVATE, "")
    if not text.strip():
        return None
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{PRIVATE}: is no Ed25519 key in PEM; `openssl genpkey -algorithm ed25519` makes one")
    return key


def checking_key() -> Ed25519PublicKey | None:
    """The key that champions are checked with; None where none is set, and signatures are not asked for.

    Raises:
        InputError: it is no such key.
    """
    text = os.environ.get(PUBLIC, "")
    if not text.strip():
        return None
    try:
        key = load_pem_public_key(text.encode())
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{PUBLIC}: is no public Ed25519 key in PEM; `openssl pkey -pubout` gives the private one's")
    return key


def signed(key: Ed25519PrivateKey, name: str, version: str, digest: str) -> str:
    """The signature (Base64) that a version of a model, with a digest of its files, was promoted."""
    return base64.b64encode(key.sign(_statement(name, version, digest))).decode()


def holds(key: Ed25519PublicKey, signature: str, name: str, version: str, digest: str) -> bool:
    """Whether a signature is that of just this promotion."""
    try:
        key.verify(base64.b64decode(signature, validate=True), _statement(name, version, digest))
    except (InvalidSignature, Error, ValueError):
        return False
    return True


def _statement(name: str, version: str, digest: str) -> bytes:
    return json.dumps(["understudy promotion 1", name, version, digest]).encode()
