"""Errors of commands, each one sentence for people, and the table of exit codes.

CommandFailed
├── BadArgument         an option, an argument or a file cannot be used as it is
├── ApiFailed           the API did not do what the command asked for
└── NotReadableYet      (load_wait) rows are written, and cannot be read yet
"""

from enum import IntEnum

import keylane_client as api


class ExitCode(IntEnum):
    """What scripts see, as docs/use/command-line.md lists it."""

    FAILED = 1
    BAD_ARGUMENT = 2
    NOT_FOUND = 3
    ACCESS_DENIED = 4
    UNREACHABLE = 5
    UNAVAILABLE = 6
    INTERRUPTED = 130


_OF_API = {
    api.NotFound: ExitCode.NOT_FOUND,
    api.AccessDenied: ExitCode.ACCESS_DENIED,
    api.NoCredentials: ExitCode.ACCESS_DENIED,
    api.Unreachable: ExitCode.UNREACHABLE,
    api.Unavailable: ExitCode.UNAVAILABLE,
    api.RateLimited: ExitCode.UNAVAILABLE,
    api.PositionNotReached: ExitCode.UNAVAILABLE,
}


class CommandFailed(Exception):
    """Base of all errors of commands. The text is shown to the user and says what to do."""

    exit_code = ExitCode.FAILED


class BadArgument(CommandFailed):
    """An option, an argument or a file that the user gave cannot be used as it is."""

    exit_code = ExitCode.BAD_ARGUMENT


class ApiFailed(CommandFailed):
    """The API did not do what a command asked for."""

    def __init__(self, error: api.KeylaneError) -> None:
        super().__init__(_advise(error))
        kinds = (code for kind, code in _OF_API.items() if isinstance(error, kind))
        self.exit_code = next(kinds, ExitCode.FAILED)


def _advise(error: api.KeylaneError) -> str:
    text = " ".join(str(error).split())
    sentence = text if text.endswith((".", "?")) else f"{text}."
    match error:
        case api.Unreachable():
            return f"{sentence} Start the local stack with `keylane up`, or name another API with --url."
        case api.AccessDenied(type="topic-not-served"):
            return f"{text}: whoever runs the service adds it there, for a stack of yours in keylane.env."
        case api.AccessDenied():
            return f"{sentence} Use --api-key, --authorization or --sign, as the deployment demands."
        case api.ProblemError(retry_after_s=float(seconds)):
            return f"{text} (try again in {seconds:.0f} s)"
        case _:
            return text
