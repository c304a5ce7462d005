"""Keylane: Kafka topics queryable over HTTPS, serverless."""

import os
import sys

__version__ = "0.1.0"
BUILT_FOR = "built_for"
"""A file that the build of the layer writes beside this one: "python3.13 x86_64". The sources have none."""
_ARCHITECTURES = {"aarch64": "arm64"}


def check_build(file: str) -> None:
    """Raise ImportError if `file` says that its layer was built for another Python or processor.

    Its native libraries could not be loaded, and their errors would only name a missing module.
    """
    try:
        with open(file, encoding="utf-8") as content:  # noqa: PTH123 (pathlib takes longer to import)
            runtime, architecture = content.read().split()
    except FileNotFoundError:
        return
    machine = os.uname().machine
    here = (f"python{sys.version_info.major}.{sys.version_info.minor}", _ARCHITECTURES.get(machine, machine))
    if here != (runtime, architecture):
        raise ImportError(
            f"the layer was built for {runtime} on {architecture}, this function runs {here[0]} on {here[1]}:"
            f" build it with KEYLANE_RUNTIME={here[0]} KEYLANE_ARCHITECTURE={here[1]} make build, or set the"
            " template's parameters Runtime and Architecture to what it was built for"
        )


check_build(os.path.join(os.path.dirname(__file__), BUILT_FOR))  # noqa: PTH118, PTH120 (as above)
