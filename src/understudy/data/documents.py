"""The check of a document that a source has read."""

from codecs import BOM_UTF8

from understudy.data.raw import EMPTY, Broken, Checked, Raw
from understudy.store.files import sha256


def check_document(record: Raw) -> Checked | Broken:
    """Check a document in UTF-8. Latin letters in UTF-16 or UTF-32 are valid UTF-8 too, with a zero beside each.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    content = record.content
    content.decode()
    if not content:
        return Broken(record.name, EMPTY)
    if (zero := content.find(0)) >= 0:
        return Broken(record.name, f"is not UTF-8 text (byte {zero} is zero, as in UTF-16 and in binary files)")
    plain = content.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return Checked(record, sha256(plain))
