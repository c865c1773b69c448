"""The check of a record of texts that a source has read: a document, or several texts."""

from codecs import BOM_UTF8

from understudy.data.raw import EMPTY, Broken, Checked, Raw
from understudy.data.records import identity


def check_document(record: Raw) -> Checked | Broken:
    """Check texts in UTF-8. Latin letters in UTF-16 or UTF-32 are valid UTF-8 too, with a zero beside each.

    Raises:
        UnicodeDecodeError: one is not UTF-8.
    """
    if not record.content:
        return Broken(record.name, EMPTY)
    for text in (record.content, *record.others.values()):
        text.decode()
        if (zero := text.find(0)) >= 0:
            return Broken(record.name, f"is not UTF-8 text (byte {zero} is zero, as in UTF-16 and in binary files)")
    plain = {name: _plain(text) for name, text in record.others.items()}
    return Checked(record, identity(_plain(record.content), plain))


def _plain(text: bytes) -> bytes:
    return text.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
