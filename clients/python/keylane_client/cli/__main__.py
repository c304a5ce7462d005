"""The program `keylane`, and `python -m keylane_client.cli`."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run a command. An error that has an exit code is shown as one sentence, below its notes."""
    if not (find_spec("click") and find_spec("rich")):
        sys.exit("keylane: its commands are not installed: pip install 'keylane-client[cli]'")
    # httpx imports its own command line where click and rich are: as long as all that it does here.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    from keylane_client.cli.commands import keylane  # noqa: PLC0415 (of the extra)

    try:
        keylane(prog_name="keylane")
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("keylane"):
            raise
        # Of a command that another package has added, and whose extra is not installed.
        package = error.name.partition(".")[0]
        sys.exit(
            f"keylane: this command needs the package {package}: pip install 'keylane[local]' has all that"
            " the commands need, 'keylane[server]' what `keylane serve` needs"
        )
    except OSError as error:  # of a disk or a file: full, read-only, another user's, another kind
        _show(error)
        sys.exit(1)
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)
        if exit_code is None:
            raise
        _show(error)
        sys.exit(exit_code)


def _show(error: Exception) -> None:
    from rich.console import Console  # noqa: PLC0415 (its import takes long)
    from rich.markup import escape  # noqa: PLC0415

    from keylane_client.cli.printing import LINES, printable  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for note in getattr(error, "__notes__", ()):
        heading, _, text = note.partition("\n")
        console.print(f"[dim]{escape(printable(heading))}[/]\n{escape(printable(text, LINES))}\n")
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    console.print(f"[red]keylane:[/] {escape(printable(text, LINES))}")


if __name__ == "__main__":
    main()
