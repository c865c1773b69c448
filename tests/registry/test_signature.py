import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.reviewers import key_pair
from understudy.errors import InputError
from understudy.registry.signature import PRIVATE, PUBLIC, checking_key, is_valid, signed, signing_key

KEY = Ed25519PrivateKey.generate()
PUBLIC_KEY = KEY.public_key()
NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_signature_is_valid_for_its_own_promotion_alone(name: str, version: str, digest: str, different: str) -> None:
    signature = signed(KEY, name, version, digest)
    assert is_valid(PUBLIC_KEY, signature, name, version, digest)
    for fields in (
        (different, version, digest),
        (name, different, digest),
        (name, version, different),
        (name + version, "", digest),
    ):
        assert is_valid(PUBLIC_KEY, signature, *fields) == (fields == (name, version, digest))


@pytest.mark.parametrize("signature", ["", "no signature", "é", "AAAA", base64.b64encode(b"x" * 64).decode()])
def test_an_invalid_signature_is_rejected(signature: str) -> None:
    assert not is_valid(PUBLIC_KEY, signature, "digits", "1", "d")


def test_another_keys_signature_does_not_hold() -> None:
    assert not is_valid(PUBLIC_KEY, signed(Ed25519PrivateKey.generate(), "digits", "1", "d"), "digits", "1", "d")


def test_the_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = key_pair()
    monkeypatch.setenv(PRIVATE, private)
    monkeypatch.setenv(PUBLIC, public)
    ours, theirs = signing_key(), checking_key()
    assert ours
    assert theirs
    assert is_valid(theirs, signed(ours, "digits", "1", "d"), "digits", "1", "d")
    for variable in (PRIVATE, PUBLIC):
        monkeypatch.setenv(variable, " \n")
    assert (signing_key(), checking_key()) == (None, None)


def test_a_key_of_another_kind_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    private, _ = key_pair()
    for variable, read, wrong in (
        (PRIVATE, signing_key, curve),
        (PUBLIC, checking_key, private),
        (PUBLIC, checking_key, "x"),
    ):
        monkeypatch.setenv(variable, wrong)
        with pytest.raises(InputError, match=f"{variable}: is no") as refused:
            read()
        assert wrong.splitlines()[-1] not in str(refused.value).split()
