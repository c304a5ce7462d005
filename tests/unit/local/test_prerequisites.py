"""What is missing is said before anything starts, and what can be downloaded is."""

from __future__ import annotations

import hashlib

import pytest

from keylane_local import jars, tools
from keylane_local.errors import ToolMissing
from keylane_local.setup import prerequisites
from keylane_local.setup.prerequisites import JAVA, REDIS
from keylane_local.setup.runner import SetupError
from keylane_local.stack.stack import Stack

APT = "sudo apt-get install --no-install-recommends"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The files of an installed package, with a list of jars that are empty; its user's caches are empty."""
    shipped = tmp_path / "site-packages" / "keylane_local" / "shipped"
    (shipped / "infra").mkdir(parents=True)
    (shipped / "pom.xml").write_text("<project/>")
    (shipped / jars.LIST).write_text(f"{hashlib.sha256(b'').hexdigest()}  kafka_2.13-4.3.1.jar\n")
    monkeypatch.setattr(tools, "_SHIPPED", shipped)
    monkeypatch.delenv("KEYLANE_TOOLS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(tools.sys, "platform", "linux")
    return shipped


def test_all_that_is_missing_is_said_at_once_with_the_command_that_installs_it(programs):
    programs("apt-get")
    with pytest.raises(ToolMissing) as caught:
        prerequisites.require_programs(JAVA, REDIS)
    assert str(caught.value) == (
        "Java 17 or newer and Redis (or Valkey) 7.0 or newer are missing. To install:"
        f" {APT} openjdk-17-jre-headless redis-server"
    )


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("brew", "brew install redis"),
        ("pacman", f"{APT} redis-server (Debian, Ubuntu), or brew install redis"),
    ],
)
def test_only_what_is_missing_is_named_in_the_words_of_the_system(programs, manager, command):
    programs(manager)
    programs("java", """echo 'openjdk version "21"'""")
    with pytest.raises(ToolMissing) as caught:
        prerequisites.require_programs(JAVA, REDIS)
    assert str(caught.value) == f"Redis (or Valkey) 7.0 or newer is missing. To install: {command}"


def test_a_stack_without_its_programs_starts_nothing_and_leaves_no_plan(programs, tmp_path):
    stack = Stack(tmp_path / "data")
    with pytest.raises(ToolMissing, match="Java 17 or newer and Redis"):
        stack.up()
    assert not (tmp_path / "data" / "stack.json").exists()
    assert not (tmp_path / "data" / "logs").exists()


def test_an_installed_package_has_its_own_files_and_the_user_s_caches(installed, tmp_path):
    assert tools.project_root() == installed
    folder = tools.tools_dir()
    assert folder.parent == tmp_path / "caches" / "keylane"
    assert folder.name == tools.metadata.version("keylane")


@pytest.mark.usefixtures("installed")
def test_an_installed_package_downloads_its_jars_once_and_checks_them(
    installed, programs, monkeypatch, tmp_path
):
    ivy = tmp_path / "pyspark" / "jars"
    ivy.mkdir(parents=True)
    (ivy / "ivy-2.5.3.jar").touch()
    monkeypatch.setattr(prerequisites, "_pyspark_jars", lambda: iter([ivy]))
    script = 'if [ "$1" = -version ]; then echo \'openjdk version "17"\'; exit 0; fi\necho run >> runs\n'
    programs("java", f"{script}mkdir -p jars.new; touch jars.new/kafka_2.13-4.3.1.jar")
    prerequisites.fetch_jars()
    prerequisites.fetch_jars()
    folder = tools.tools_dir()
    assert (folder / "runs").read_text().split() == ["run"]
    assert [path.name for path in (folder / "jars").iterdir()] == ["kafka_2.13-4.3.1.jar"]
    (folder / "jars" / "kafka_2.13-4.3.1.jar").unlink()
    programs("java", f"{script}mkdir -p jars.new; echo other > jars.new/kafka_2.13-4.3.1.jar")
    with pytest.raises(SetupError, match="has the SHA-256"):
        prerequisites.fetch_jars()
    assert not list((folder / "jars").iterdir())
