"""Options that several commands have."""

from pathlib import Path

import click

with_config = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default="keylane.toml",
    show_default=True,
    help="Topics and views.",
)
