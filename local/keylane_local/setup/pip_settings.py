"""Where packages come from: pip's settings of this machine, as uv takes them.

Standard library only: nothing is installed yet.
"""

import ast
import subprocess

_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
_SEPARATED_BY_COMMAS = ("find-links",)


def for_uv(python: str) -> dict[str, str]:
    """Return the environment with which uv installs from where this Python's pip would.

    Source: `pip config list`, a line of `SECTION.NAME='VALUE'` for each setting, the strongest section last;
    the variables of https://docs.astral.sh/uv/reference/environment/.
    """
    listed = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    return parse(listed)


def parse(listed: str) -> dict[str, str]:
    """Return the variables for the lines of `pip config list`; `install` is stronger than `global`."""
    found: dict[str, tuple[int, str]] = {}
    strengths = {"global": 0, "install": 1, ":env:": 2}
    for line in listed.splitlines():
        name, is_setting, value = line.partition("=")
        section, _, name = name.rpartition(".")
        if not is_setting or section not in strengths or name not in _NAMES:
            continue
        words = str(ast.literal_eval(value)).split()
        text = ("," if name in _SEPARATED_BY_COMMAS else " ").join(words)
        variable, strength = _NAMES[name], strengths[section]
        if text and strength >= found.get(variable, (0, ""))[0]:
            found[variable] = strength, text
    return {variable: text for variable, (_, text) in found.items()}
