"""The commands of the program. The module of one is imported once it runs, so `get` starts fast.

Other packages add commands by entry points of the group `keylane.commands`: each is a package's table, as
`COMMANDS` is this one's. An error with an `exit_code` that such a command raises is shown as one sentence.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

GROUP = "keylane.commands"
COMMANDS = {
    "topics": (".records:topics", "List Kafka's topics and their partition counts."),
    "get": (
        ".records:get",
        "Print the record of KEY: its value, byte for byte; with --json also position, age and watermark.",
    ),
    "join": (".records:join", "Print KEY's records of 2 to 10 topics, read at one moment."),
    "views": (".views:views", "List the views: topic, window and columns, or why one does not run."),
    "windows": (".views:windows", "Print VIEW's windows: of KEY, or of all keys in their order."),
    "put": (".records:put", "Write VALUE under KEY; without VALUE, what standard input has."),
    "delete": (".records:delete", "Write a tombstone for KEY."),
    "scan": (".records:scan", "Print keys and values in the keys' order."),
    "find": (
        ".records:find",
        "Print keys and values of the records that meet all conditions on their fields.",
    ),
    "count": (".records:count", "Print how many keys TOPIC has."),
    "history": (".records:history", "Print KEY's records, newest first."),
    "watch": (".following:watch", "Print KEY's record, then each change, until Ctrl-C (or so many of them)."),
    "tail": (
        ".following:tail",
        "Print TOPIC's records as they arrive in Kafka: time, position, key and value, until Ctrl-C.",
    ),
    "load": (
        ".load:load",
        (
            "Write each row of FILE (CSV, JSON lines, Parquet) as a JSON object; "
            "then wait until all can be read."
        ),
    ),
    "export": (
        ".export:export",
        (
            "Write TOPIC's records as of one position to a file: "
            "JSON lines, which import reads, CSV or Parquet."
        ),
    ),
    "import": (
        ".import_records:import_records",
        (
            "Write the records of FILE, which export wrote as JSON lines, to TOPIC; "
            "then wait until all can be read."
        ),
    ),
    "lanes": (".lanes:lanes", "Show TOPIC's lanes: partition, slot, shard, records applied, lag and age."),
    "login": (
        ".login:login",
        (
            "Log in by the browser; commands that speak to this API then send the token, "
            "if they are given none."
        ),
    ),
    "logout": (".login:logout", "Forget the token of the login at this API."),
    "open": (
        ".open_in_browser:open_in_browser",
        "Open the console in the browser, and print its URL; the list of topics if the API has no console.",
    ),
}
"""Name -> the command's module and name, and the first sentence of its help."""


class LazyCommand(click.Command):
    """A command whose module is imported once it runs, or shows its own help."""

    def __init__(self, name: str, package: str, where: str, text: str) -> None:
        super().__init__(name, help=text)
        self._package = package
        self._where = where

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self._where.partition(":")
        found: click.Command = getattr(import_module(module, self._package), name)
        return found

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Go on as the command itself."""
        return self.load().make_context(info_name, args, parent, **extra)


class LazyGroup(click.Group):
    """The commands of this package, and those of others once one of them is asked for."""

    def add_table(self, package: str, table: Mapping[str, tuple[str, str]]) -> None:
        """Add the commands of a package."""
        for name, (where, text) in table.items():
            self.add_command(LazyCommand(name, package, where, text))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        self._add_installed()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command. A name that this package does not have is looked up in the others."""
        if cmd_name not in self.commands and not self._add_installed() and not ctx.resilient_parsing:
            ctx.fail(
                f"No such command {cmd_name!r}. The commands of the local stack are not installed:"
                " pip install 'keylane[local]'"
            )
        return super().get_command(ctx, cmd_name)

    def _add_installed(self) -> bool:
        """Add the commands of other packages; return whether there are any."""
        from importlib.metadata import entry_points  # noqa: PLC0415 (its import takes longer than click's)

        found = entry_points(group=GROUP)
        for each in found:
            self.add_table(each.module, each.load())
        return bool(found)


keylane = LazyGroup(
    "keylane", help="Kafka topics, queryable over HTTP: the local stack, and any deployed API."
)
keylane = click.version_option(package_name="keylane-client", prog_name="keylane")(keylane)
keylane.add_table(__package__, COMMANDS)
