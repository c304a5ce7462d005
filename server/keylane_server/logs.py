"""Lines of the log: whatever a client has sent, a line is one, is shown as it is, and has an end.

Text of clients is in lines of access and of errors. A terminal obeys C0 and C1 controls, a viewer takes
U+0085 and U+2028 for the end of a line, and U+202E turns around what follows it.
"""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(message)s"
LONGEST_MESSAGE = 4_096
"""Characters of a message; those of a traceback do not count."""


def configure_logging() -> None:
    """Write the log of the process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class PlainFormatter(logging.Formatter):
    """Escapes what is not printable, as Python does in a string; of a traceback not the ends of lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """See `logging.Formatter`."""
        record.message = printable(record.message[: LONGEST_MESSAGE + 1])
        if len(record.message) > LONGEST_MESSAGE:
            record.message = record.message[:LONGEST_MESSAGE] + "..."
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return "\n".join(map(printable, super().format(record).split("\n")))


def printable(text: str) -> str:
    """Return the text with escapes for what is not printable."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )
