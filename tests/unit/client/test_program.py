"""The program `keylane`: its commands, what it imports for one, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.support.http_doubles import Exchange, HttpDouble

from keylane_cli import COMMANDS as OF_THE_STACK
from keylane_client.cli import __main__, access, commands
from keylane_client.cli.errors import BadArgument
from keylane_local.errors import PartFailed
from keylane_local.stack.state import StackState

TABLES = {**commands.COMMANDS, **OF_THE_STACK}
RUN = "from keylane_client.cli.__main__ import main; main()"
RUN_AND_LIST_MODULES = f"""
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
{RUN}
"""


def give_one_record(asked: Exchange) -> None:
    headers = {"Keylane-Position": "2:7", "Keylane-Timestamp": "5", "Content-Type": "application/json"}
    asked.answer(200, b'{"a":1}', headers.items())


@pytest.fixture
def url():
    """An API that has one record."""
    with HttpDouble(give_one_record) as server:
        yield server.url


def test_a_file_that_can_not_be_used_is_one_sentence(tmp_path):
    (tmp_path / "stack.json").mkdir()
    done = run_program("status", "--data-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"keylane: {tmp_path / 'stack.json'}: Is a directory\n"


def run_program(*arguments: str, code: str = RUN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def imported_by(*arguments: str) -> set[str]:
    done = run_program(*arguments, code=RUN_AND_LIST_MODULES)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr))


@pytest.mark.parametrize("name", TABLES)
def test_the_list_has_the_first_sentence_of_a_commands_own_help(name):
    listed = commands.keylane.get_command(click.Context(commands.keylane), name)
    loaded = listed.load()
    assert loaded.name == name
    for width in (30, 45, 60, 70, 1000):
        assert listed.get_short_help_str(width) == loaded.get_short_help_str(width)


def test_all_commands_are_listed_and_the_project_adds_its_own():
    printed = CliRunner().invoke(commands.keylane, ["--help"]).stdout
    listed = printed.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == sorted(TABLES)


def test_a_read_imports_what_it_needs_and_nothing_of_the_project(url):
    modules = imported_by("get", "flights", "N1", "--url", url)
    assert {"click", "httpx", "keylane_client.client"} <= modules
    heavy = {"rich", "pygments", "boto3", "botocore", "urllib3", "pyarrow", "asyncio", "importlib.metadata"}
    assert not modules & {*heavy, "keylane", "keylane_local", "keylane_server", "keylane_spark"}
    own = {name for name in modules if name.startswith("keylane_client.cli.")}
    assert own == {
        f"keylane_client.cli.{name}"
        for name in ("__main__", "access", "commands", "conditions", "errors", "printing", "records")
    }


@pytest.mark.parametrize("arguments", [["--help"], ["get", "--help"]])
def test_a_help_page_imports_no_http(arguments):
    modules = imported_by(*arguments)
    assert "click" in modules
    assert not modules & {"httpx", "ssl", "rich", "keylane", "keylane_cli.stack", "pydantic", "redis"}


def test_without_the_extra_one_sentence_says_what_to_install():
    done = run_program("get", "t", "k", code=f"import sys; sys.modules['click'] = None\n{RUN}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "keylane: its commands are not installed: pip install 'keylane-client[cli]'\n"


def test_without_the_project_its_commands_are_not_listed_and_say_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    alone = commands.LazyGroup("keylane")
    alone.add_table("keylane_client.cli", commands.COMMANDS)
    printed = CliRunner().invoke(alone, ["--help"]).stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in printed.splitlines()] == sorted(commands.COMMANDS)
    result = CliRunner().invoke(alone, ["up"])
    assert result.exit_code == 2
    assert "No such command 'up'. The commands of the local stack are not installed" in result.stderr
    assert "pip install 'keylane[local]'" in result.stderr


@pytest.mark.parametrize(("command", "package"), [("status", "psutil"), ("serve", "granian")])
def test_a_command_whose_extra_is_not_installed_says_which_one_it_is(command, package):
    """`pip install keylane` has the layer and the commands for any API."""
    done = run_program(command, code=f"import sys; sys.modules[{package!r}] = None\n{RUN}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"keylane: this command needs the package {package}: pip install 'keylane[")


def test_a_command_that_nobody_has_is_refused():
    result = CliRunner().invoke(commands.keylane, ["nothing"])
    assert (result.exit_code, "No such command 'nothing'." in result.stderr) == (2, True)


def test_an_error_is_shown_below_the_log_of_what_failed(monkeypatch, capsys):
    def fail() -> None:
        raise PartFailed("kafka", "it [ended]", "kafka.log", "line 1\n[line] 2")

    monkeypatch.setitem(commands.keylane.commands, "fail", click.Command("fail", callback=fail))
    monkeypatch.setattr(sys, "argv", ["keylane", "fail"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 1
    shown = "The end of kafka.log:\nline 1\n[line] 2\n\nkeylane: kafka failed: it [ended]\n"
    assert capsys.readouterr() == ("", shown)


def test_an_error_without_an_exit_code_is_not_hidden(monkeypatch):
    def fail() -> None:
        raise LookupError("a bug")

    monkeypatch.setitem(commands.keylane.commands, "fail", click.Command("fail", callback=fail))
    monkeypatch.setattr(sys, "argv", ["keylane", "fail"])
    with pytest.raises(LookupError):
        __main__.main()


def state_at(http_port: int) -> StackState:
    return StackState(1, 2, [(3, 4)], http_port, 3, 1, appendonly=True, config=None)


def test_the_status_as_json_is_json_alone(tmp_path):
    nothing = run_program("status", "--json", "--data-dir", str(tmp_path))
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "No stack was ever started" in nothing.stderr
    state_at(8123).save(tmp_path)
    done = run_program("status", "--json", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"name": "kafka", "state": "down", "details": "127.0.0.1:1"},
        {"name": "redis-0", "state": "down", "details": "127.0.0.1:3"},
        {"name": "server", "state": "down", "details": "http://127.0.0.1:8123"},
    ]


def test_the_api_of_the_local_stack_is_found_where_the_stack_wrote_its_ports(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_DATA", str(tmp_path))
    assert access.local_url() == "http://localhost:8080"
    state_at(8123).save(tmp_path)
    assert access.local_url() == "http://127.0.0.1:8123"
    monkeypatch.delenv("KEYLANE_DATA")
    monkeypatch.chdir(tmp_path)
    state_at(8124).save(tmp_path / ".keylane")
    assert access.local_url() == "http://127.0.0.1:8124"


@pytest.mark.parametrize("data", ["/dev/null", "."])
def test_a_file_of_the_stack_that_is_none_is_named(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stack.json").mkdir()
    monkeypatch.setenv("KEYLANE_DATA", data)
    with pytest.raises(BadArgument, match=r"stack\.json can't be read: \w"):
        access.local_url()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"http_port": null}', '{"http_port": 1e999}'])
def test_a_broken_file_of_the_stack_is_named(tmp_path, monkeypatch, text):
    monkeypatch.setenv("KEYLANE_DATA", str(tmp_path))
    (tmp_path / "stack.json").write_text(text)
    with pytest.raises(BadArgument, match=r"stack\.json is not readable \(.*remove the folder"):
        access.local_url()


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    result = CliRunner().invoke(commands.keylane, ["topics", "--sign", "--region", "eu-west-1"])
    assert isinstance(result.exception, BadArgument)
    assert str(result.exception) == "--sign needs botocore: pip install 'keylane-client[aws]'"
