from __future__ import annotations

import pytest

from keylane_local.setup import pip_settings


@pytest.mark.parametrize(
    ("listed", "variables"),
    [
        pytest.param("", {}, id="nothing is set"),
        pytest.param(
            "global.index-url='https://mirror.example/simple'\nglobal.extra-index-url='https://a/s\\nhttps://b/s'",
            {"UV_DEFAULT_INDEX": "https://mirror.example/simple", "UV_INDEX": "https://a/s https://b/s"},
            id="a mirror and two further indexes",
        ),
        pytest.param(
            ":env:.find-links='/wheels'\nglobal.find-links='/a /b'\n:env:.cert='/ca.pem'",
            {"UV_FIND_LINKS": "/wheels", "SSL_CERT_FILE": "/ca.pem"},
            id="the environment is stronger than a file",
        ),
        pytest.param(
            "install.index-url='https://i/s'\nglobal.index-url='https://g/s'",
            {"UV_DEFAULT_INDEX": "https://i/s"},
            id="what is set for install is stronger than what is set for all commands",
        ),
        pytest.param("global.find-links='/a\\n/b'", {"UV_FIND_LINKS": "/a,/b"}, id="folders in commas"),
        pytest.param(
            "download.index-url='https://d/s'\nglobal.no-cache-dir='true'\nWARNING: odd",
            {},
            id="what is for others",
        ),
    ],
)
def test_packages_come_from_where_pip_would_take_them(listed, variables):
    assert pip_settings.parse(listed) == variables
