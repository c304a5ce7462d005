"""docs/operate/own-kafka.md: its units and its compose file start what there is."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from keylane_cli.check_config import check_settings
from keylane_client.cli.commands import keylane
from keylane_local import env_file
from keylane_local.errors import BadInput

PAGE = Path("docs/operate/own-kafka.md").read_text(encoding="utf-8")
UNITS = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_a_command_with_options_that_it_has(unit):
    parsed = ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit)
    service = parsed["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/keylane")
    # Options that there are not end the parsing before the help is shown.
    result = CliRunner().invoke(keylane, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    assert service["EnvironmentFile"] == f"{service['WorkingDirectory']}/{env_file.NAME}"


def test_there_is_a_unit_for_each_part():
    assert [unit.splitlines()[0] for unit in UNITS] == [
        f"# /etc/systemd/system/keylane-{part}.service" for part in ("job", "server")
    ]


def test_the_compose_file_reads_the_files_that_new_writes():
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    services = yaml.safe_load(text)["services"]
    assert services.keys() == {"job", "server"}
    for service in services.values():
        assert service["env_file"] == env_file.NAME
        assert service["volumes"] == ["./keylane.toml:/keylane/keylane.toml:ro"]


def test_the_settings_of_the_page_are_ones(tmp_path):
    [text] = re.findall(r"```\n(KEYLANE_KAFKA_BOOTSTRAP.*?)```", PAGE, re.DOTALL)
    (tmp_path / "keylane.env").write_text(text)
    assert check_settings(tmp_path / "keylane.env") == []


def test_a_job_without_its_file_says_which_is_missing(tmp_path):
    result = CliRunner().invoke(keylane, ["job", "--config", str(tmp_path / "keylane.toml")])
    assert isinstance(result.exception, BadInput)
    assert "does not exist: `keylane new` writes one" in str(result.exception)
