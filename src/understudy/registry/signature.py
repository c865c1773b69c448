"""The signature of a promotion: the MLflow server signs it, and every process that loads a champion verifies it.

The private key is Ed25519 (RFC 8032), and only the server has it. So write access to the registry's database or bucket,
or to the connection, cannot make a champion: the signature covers model, version and digest, and the digest the files.
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
"""Variables with a key in PEM: the server's, and the one of processes that load a champion."""


def signing_key() -> Ed25519PrivateKey | None:
    """The server's key; None if it is not set, and promotions are not signed.

    Raises:
        InputError: it is not an Ed25519 key. The message does not contain it.
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
    """The key that verifies champions; None if it is not set, and signatures are not required.

    Raises:
        InputError: it is not an Ed25519 key.
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
    """The signature (Base64) of the promotion of a model's version with this digest."""
    return base64.b64encode(key.sign(_statement(name, version, digest))).decode()


def is_valid(key: Ed25519PublicKey, signature: str, name: str, version: str, digest: str) -> bool:
    """Whether a signature is valid for exactly this promotion."""
    try:
        key.verify(base64.b64decode(signature, validate=True), _statement(name, version, digest))
    except (InvalidSignature, Error, ValueError):
        return False
    return True


def _statement(name: str, version: str, digest: str) -> bytes:
    return json.dumps(["understudy promotion 1", name, version, digest]).encode()
