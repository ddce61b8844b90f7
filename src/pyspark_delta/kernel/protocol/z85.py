"""Z85: bytes as text that needs no escaping in JSON, four bytes to five characters.

The codec knows whole groups only; what is padded, and cut back, is its caller's affair.
PROTOCOL.md, "Deletion Vector Descriptor Schema", names it; ZeroMQ's RFC 32 defines it.

>>> encode_z85(bytes.fromhex("864fd26fb559f75b"))
'HelloWorld'
>>> decode_z85("HelloWorld").hex()
'864fd26fb559f75b'
"""

from __future__ import annotations

import struct

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {ord(character): value for value, character in enumerate(ALPHABET)}
_POWERS = (85**4, 85**3, 85**2, 85, 1)


def encode_z85(data: bytes) -> str:
    """The text of `data`, whose length must be a multiple of four."""
    if len(data) % 4:
        raise ValueError(f"Z85 takes groups of 4 bytes, not {len(data)} bytes")
    return "".join(
        ALPHABET[word // power % 85]
        for (word,) in struct.iter_unpack(">I", data)
        for power in _POWERS
    )


def decode_z85(text: str) -> bytes:
    """The bytes of `text`; ValueError for a character or group that Z85 does not have."""
    if len(text) % 5:
        raise ValueError(f"Z85 takes groups of 5 characters, not {len(text)} characters")
    try:
        digits = [_VALUES[ord(character)] for character in text]
    except KeyError as error:
        raise ValueError(f"Z85 has no character {chr(error.args[0])!r}") from None
    words = []
    for at in range(0, len(digits), 5):
        a, b, c, d, e = digits[at : at + 5]
        word = (((a * 85 + b) * 85 + c) * 85 + d) * 85 + e
        if word > 0xFFFF_FFFF:
            raise ValueError(f"the Z85 group {text[at : at + 5]!r} is larger than 4 bytes")
        words.append(word)
    return struct.pack(f">{len(words)}I", *words)
