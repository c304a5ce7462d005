from __future__ import annotations

from pathlib import Path

import pytest

from keylane_server.admission import Limits
from keylane_server.options import TOKENS, VARIABLE, ServerOptions


@pytest.mark.parametrize("path", [None, Path("/etc/tls.pem")])
def test_the_processes_get_the_options_of_the_command(path):
    options = ServerOptions(
        "::1",
        workers=3,
        tls_certificate=path,
        authorization=TOKENS,
        console=path,
        limits=Limits(running=7),
    )
    assert ServerOptions.from_environment({VARIABLE: options.to_variable()}) == options


def test_the_address_for_clients_has_brackets_around_ipv6():
    assert ServerOptions("::1", 80).url == "http://[::1]:80"
    assert ServerOptions(tls_certificate=Path("c")).url == "https://127.0.0.1:8080"
