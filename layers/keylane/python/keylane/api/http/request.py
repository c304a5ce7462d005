"""A request, whoever received it, and what the parts of its path and its body say."""

import binascii
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from keylane.access.callers import Caller, Sender
from keylane.access.scopes import Scope
from keylane.api.http.content_coding import inflate
from keylane.api.http.rendering import JSON
from keylane.errors import BadRequest, UnsupportedMediaType
from keylane.model.records import is_topic_name
from keylane.ports import Deadline

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:[\w.~%!$&'()*+;=-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?", re.ASCII)
_LONGEST_HOST = 300
"""A name has at most 253 characters."""
_STANDARD = bytes.maketrans(b"-_+/", b"+/  ")
NOBODY = Caller()


class Request(NamedTuple):
    """An HTTP request. Hosts make it: Lambda of API Gateway's events, the server of what ASGI gives it.

    `path`: percent-encoded, as it was sent. `query`: all values of each parameter, decoded, in their order.
    `headers`: by lower-case name, the values of a repeated one as a list with commas. `body`: as it was sent,
    perhaps compressed. `deadline`: until when the host waits for the response, None without end.
    `root_path`: what the host took off the path's beginning, as API Gateway takes the stage.
    `scope`: what the caller may see and write; None for one who may all of what the route is about.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    caller: Sender = NOBODY
    id: str = "unknown"
    deadline: Deadline | None = None
    root_path: str = ""
    scope: Scope | None = None

    def content(self) -> bytes:
        """Return the body, inflated where the client compressed it.

        Raises BadRequest, UnsupportedEncoding, TooLarge.
        """
        coding = self.headers.get("content-encoding")
        return inflate(self.body, coding) if coding else self.body


def is_host(value: str) -> bool:
    """Return whether a Host header's value is one host, perhaps with a port (RFC 9110, 7.2)."""
    return len(value) <= _LONGEST_HOST and _is_host(value)


@lru_cache(1_024)
def _is_host(value: str) -> bool:
    return _HOST.fullmatch(value) is not None


def json_parameters(request: Request) -> list[str]:
    """Return the parameters of the media type of a body in JSON. Raises UnsupportedMediaType for another."""
    given = request.headers.get("content-type", "")
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    if media_type != JSON:
        raise UnsupportedMediaType(f"Content-Type is {given[:100]!r}: it must be {JSON}")
    return parameters


def topic_of(raw: str) -> str:
    """Return the name of a topic in a path. Raises BadRequest for a name that Kafka does not accept.

    Percent-encoding is refused: rules of IAM and of firewalls compare paths as they are sent, and no name
    needs it.
    """
    if "%" in raw:
        raise BadRequest(
            f"{raw[:250]!r} is percent-encoded: write a topic's name as it is, it needs no encoding", "topic"
        )
    return topic_name(raw, "topic")


def id_of(raw: str) -> str:
    """Return an id in a path: of a cluster, a broker, a group, a setting. Which there are, Kafka says."""
    return unquote_to_bytes(raw).decode(errors="replace")


def topic_name(topic: str, parameter: str) -> str:
    """Return the name. Raises BadRequest for a name that Kafka does not accept."""
    if not is_topic_name(topic):
        raise BadRequest(
            f"{topic[:250]!r} can't be a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", parameter
        )
    return topic


def key_of(raw: str) -> bytes:
    """Return the bytes of a key in a path: percent-decoded, and `+` stays a plus. Raises BadRequest."""
    broken = _BAD_ESCAPE.search(raw) if "%" in raw else None
    if broken:
        raise BadRequest(
            f"the key's percent-encoding is broken at character {broken.start() + 1}: "
            "two hexadecimal digits follow a %, and a % itself is written %25",
            "key",
        )
    try:
        return unquote_to_bytes(raw) if "%" in raw else raw.encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the key contains characters that are not valid Unicode", "key") from error


def from_base64(given: bytes, parameter: str) -> bytes:
    """Decode base64 of the standard or the URL-safe alphabet, padded or not. Raises BadRequest."""
    digits = given.rstrip(b"=")
    padded = digits + b"=" * (-len(digits) % 4)
    if b"-" in given or b"_" in given:
        # A mix of both alphabets is not valid: only the characters that both share are left.
        padded = padded.translate(_STANDARD)
    try:
        data = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        data = None
    # Spare bits that aren't 0 would be a second rendering of the same key.
    last = len(padded) // 4 * 3 - 3
    if (
        data is not None
        and len(given) in {len(digits), len(padded)}
        and binascii.b2a_base64(data[last:], newline=False) == padded[-4:]
    ):
        return data
    raise BadRequest(
        f"{parameter} is not base64 (standard or URL-safe alphabet, padding optional)", parameter
    )
