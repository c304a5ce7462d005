"""The limits of a record's key, and how bytes are shown to people."""

from keylane.errors import NullKey, TooLarge

KEY_LIMIT_BYTES = 65_536
LARGEST_KEY = 1024 * 1024
"""A record of Kafka with a larger one, which may be a kilobyte there, counts as one without a key."""
PRINTABLE_CHARACTERS = 200


def check_key(key: bytes) -> None:
    """Raise NullKey for an empty key, TooLarge for one over 65,536 bytes."""
    if not key:
        raise NullKey
    if len(key) > KEY_LIMIT_BYTES:
        raise TooLarge("key", len(key), KEY_LIMIT_BYTES)


def printable(key: bytes) -> str:
    """Return bytes as text for a sentence: ASCII with escapes, cut to 200 characters."""
    text = ascii(key[:PRINTABLE_CHARACTERS])[2:-1]
    if len(key) > PRINTABLE_CHARACTERS or len(text) > PRINTABLE_CHARACTERS:
        return text[:PRINTABLE_CHARACTERS] + "..."
    return text
