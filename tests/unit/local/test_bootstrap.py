from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from keylane_local import jars, tools
from keylane_local.setup import runner

KAFKA = "kafka_2.13-4.3.1.jar"
SCRIPT = Path(tools.__file__).parents[1] / "bootstrap.py"


@pytest.fixture
def bootstrap(monkeypatch):
    """The module of the set-up, with no pauses between attempts."""
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    monkeypatch.setattr(runner, "PAUSE_S", 0.0)
    return module


@pytest.fixture
def setup(bootstrap, tmp_path):
    """The set-up of an empty checkout."""
    root = tmp_path / "a checkout"
    root.mkdir()
    (root / "pom.xml").write_text("<project/>")
    (root / "infra").mkdir()
    of_nothing = hashlib.sha256(b"").hexdigest()
    names = (KAFKA, "a.jar", "all.tar.gz")
    (root / jars.LIST).write_text("".join(f"{of_nothing}  {name}\n" for name in names))
    return bootstrap.Setup(root, root / ".keylane-tools")


@pytest.fixture
def uv(bootstrap, setup, monkeypatch):
    """Pretend that uv has been installed, and that pip has no settings."""
    program = setup.tools / bootstrap.UV / "bin" / "uv"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr(bootstrap.pip_settings, "for_uv", lambda _: {})


@pytest.fixture
def root_with_apt(programs, monkeypatch, tmp_path):
    """Make this process look like root's on a system with apt; return the log of apt's calls."""
    calls = tmp_path / "apt calls"
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def make(on_install=":"):
        programs("apt-get", f'echo "$RUNLEVEL $*" >> "{calls}"\n[ "$1" = update ] && exit 0\n{on_install}')
        return calls

    return make


def test_a_java_that_is_new_enough_is_used(programs):
    java = programs("java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    assert tools.find_java() == java


@pytest.mark.parametrize(
    "script",
    ["""echo 'java version "1.8.0_402"'""", """echo 'openjdk version "11.0.2"'""", "exit 1", "echo ?"],
)
def test_an_old_java_or_a_stub_is_not_used(programs, script):
    programs("java", script)
    assert tools.find_java() is None


@pytest.mark.parametrize(("version", "is_used"), [("21.0.1", True), ("11", False)])
def test_java_home_comes_before_the_path_unless_it_is_too_old(
    programs, tmp_path, monkeypatch, version, is_used
):
    java = programs("java", """echo 'openjdk version "17"'""")
    home = programs("java", f"""echo 'openjdk version "{version}"'""", tmp_path / "home" / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert tools.find_java() == (home if is_used else java)


def test_valkey_serves_where_redis_is_too_old(programs):
    programs("redis-server", "echo 'Redis server v=6.2.14 sha=0:0'")
    assert tools.find_redis() is None
    valkey = programs("valkey-server", "echo 'Valkey server v=8.0.1 sha=0:0'")
    assert tools.find_redis() == valkey


def test_without_root_one_line_says_what_to_install(setup, bootstrap, programs, monkeypatch):
    programs("apt-get", "exit 0")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for step, hint in ((setup.java, "brew install openjdk@17"), (setup.redis, "brew install redis")):
        with pytest.raises(bootstrap.SetupError, match=hint) as caught:
            step()
        assert "\n" not in str(caught.value)
        assert "apt-get install" in str(caught.value)


def test_root_with_apt_installs_what_is_missing_and_starts_no_service(
    setup, programs, root_with_apt, tmp_path
):
    folder = tmp_path / "a path"
    calls = root_with_apt(
        f"""printf '#!/bin/sh\\necho Redis server v=7.0.15\\n' > "{folder}/redis-server"
        chmod +x "{folder}/redis-server" """
    )
    setup.redis()
    installed = "1 install -y --no-install-recommends redis-server"
    assert calls.read_text().splitlines() == ["1 update", installed]


def test_packages_are_tried_in_order_and_the_lists_are_updated_once(setup, bootstrap, root_with_apt):
    calls = root_with_apt("exit 100")
    for step in (setup.java, setup.redis):
        with pytest.raises(bootstrap.SetupError):
            step()
    lines = [line.split()[-1] for line in calls.read_text().splitlines()]
    assert lines.count("update") == 1
    assert [*dict.fromkeys(lines)] == ["update", *bootstrap.JAVA_PACKAGES, *bootstrap.REDIS_PACKAGES]


def test_installed_programs_are_not_installed_again(setup, programs, root_with_apt):
    calls = root_with_apt()
    programs("java", """echo 'openjdk version "17"'""")
    programs("redis-server", "echo 'Redis server v=7.0.15'")
    setup.java()
    setup.redis()
    assert not calls.exists()


def test_a_browser_that_cannot_be_installed_is_reported_and_no_failure(setup, programs, monkeypatch, capsys):
    programs("apt-get", "exit 0")
    programs("chromium-browser", "echo 'this needs a snap' >&2; exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    setup.browser()
    assert "skipped, and so are the tests that need it: Chromium is missing" in capsys.readouterr().out
    browser = programs("google-chrome", "echo Google Chrome 156.0")
    assert tools.find_chromium() == browser
    setup.browser()
    assert capsys.readouterr().out == ""


def _with_ivy(setup, programs, script):
    jars = setup.venv / "lib" / "python3.11" / "site-packages" / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "ivy-2.5.3.jar").touch()
    count = setup.root / "runs"
    version = """if [ "$1" = -version ]; then echo 'openjdk version "17"'; exit 0; fi"""
    programs("java", f'{version}\necho run >> "{count}"\n{script}')
    return lambda: len(count.read_text().splitlines()) if count.exists() else 0


@pytest.mark.parametrize(
    ("step", "pom", "served"),
    [
        ("jars", "pom.xml", f"jars.new/{KAFKA} jars.new/a.jar"),
        ("registry", "tests/registry/pom.xml", "registry.new/all.tar.gz"),
        ("databases", "tests/databases/pom.xml", "databases.new/all.tar.gz"),
    ],
)
def test_what_ivy_fetches_is_fetched_once_and_again_if_its_pom_changes(setup, programs, step, pom, served):
    runs = _with_ivy(setup, programs, f"mkdir -p {step}.new; touch {served}")
    programs("tar", 'touch "$4/a.jar"')
    file = setup.root / pom
    file.parent.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(("<project/>", "<project><version>2</version></project>"), 1):
        file.write_text(text)
        getattr(setup, step)()
        getattr(setup, step)()
        assert runs() == number
    names = {path.name for path in (setup.tools / step).iterdir()}
    assert (
        names - {"keylane-stamp"}
        == {"jars": {"a.jar", KAFKA}, "registry": {"a.jar"}, "databases": {"all.tar.gz"}}[step]
    )


def test_jars_are_fetched_again_if_one_is_missing(setup, programs):
    runs = _with_ivy(setup, programs, f"mkdir -p jars.new; touch jars.new/{KAFKA} jars.new/a.jar")
    setup.jars()
    (setup.tools / "jars" / "a.jar").unlink()
    setup.jars()
    assert runs() == 2


@pytest.mark.parametrize(
    ("step", "served", "said"),
    [
        (
            "jars",
            "printf other > jars.new/a.jar",
            "a.jar has the SHA-256 d9298a10d1b0735837dc4bd85dac641b0f3",
        ),
        ("jars", "touch jars.new/b.jar", "b.jar is not in jars.sha256"),
        ("registry", "printf other > registry.new/all.tar.gz", r"all\.tar\.gz has the SHA-256 d9298a10"),
        ("databases", "printf other > databases.new/all.tar.gz", r"all\.tar\.gz has the SHA-256 d9298a10"),
    ],
)
def test_what_is_not_as_in_the_list_is_named_and_neither_taken_nor_unpacked(
    setup, bootstrap, programs, tmp_path, step, served, said
):
    (setup.root / "tests" / step).mkdir(parents=True)
    (setup.root / "tests" / step / "pom.xml").write_text("<project/>")
    _with_ivy(setup, programs, f"mkdir -p {step}.new; touch jars.new/{KAFKA}\n{served}")
    programs("tar", f'touch "{tmp_path}/unpacked"')
    with pytest.raises(bootstrap.SetupError, match=said):
        getattr(setup, step)()
    assert not (setup.tools / step).exists()
    assert not (tmp_path / "unpacked").exists()


def test_jars_are_checked_again_where_the_list_has_changed(setup, bootstrap, programs):
    _with_ivy(setup, programs, "mkdir -p jars.new; touch jars.new/kafka_2.13-4.3.1.jar")
    setup.jars()
    (setup.root / jars.LIST).write_text(f"{'0' * 64}  kafka_2.13-4.3.1.jar\n")
    with pytest.raises(bootstrap.SetupError, match="has the SHA-256"):
        setup.jars()


def test_the_list_is_written_from_what_all_files_of_ivy_name(setup, bootstrap, programs):
    (setup.root / jars.LIST).unlink()
    made = "jars.new/a.jar registry.new/b.tar.gz older-jars.new/c.jar databases.new/d.jar"
    _with_ivy(setup, programs, f"mkdir -p jars.new registry.new older-jars.new databases.new; touch {made}")
    setup.checksums()
    assert jars.read(setup.root / jars.LIST).keys() == {"a.jar", "b.tar.gz", "c.jar", "d.jar"}
    jars.verify(setup.tools / "jars.new", setup.root / jars.LIST)


def test_the_connector_of_the_older_spark_is_in_a_folder_of_its_own_without_a_broker(setup, programs):
    name = f"spark-sql-kafka-0-10_2.13-{tools.OLDER_SPARK}.jar"
    script = f'echo "$@" > asked; mkdir -p older-jars.new; touch older-jars.new/{name}'
    runs = _with_ivy(setup, programs, script)
    (setup.root / jars.LIST).write_text(f"{hashlib.sha256().hexdigest()}  {name}\n")
    setup.older_jars()
    setup.older_jars()
    assert runs() == 1
    assert [path.name for path in (setup.tools / f"jars-{tools.OLDER_SPARK}").iterdir()] == [name]
    asked = (setup.tools / "asked").read_text().split()
    assert f"-Dspark.version={tools.OLDER_SPARK}" in asked
    assert asked[asked.index("-confs") + 1] == "runtime"


def test_the_environment_of_the_older_spark_has_its_packages_before_those_of_the_project(setup, monkeypatch):
    monkeypatch.setenv("KEYLANE_TOOLS", str(setup.tools))
    others = setup.venv / "lib" / "python3.11" / "site-packages"
    others.mkdir(parents=True)
    (others / "one.py").write_text("found = 'of the project'")
    (others / "other.py").write_text("found = 'of the project'")
    commands = []

    def run(step, title, command, **_):
        commands.append(command[1:3])
        if "pip" not in command:
            return subprocess.run([sys.executable, *command[1:]], check=True)
        return Path(command[command.index("--target") + 1], "one.py").write_text("found = 'its own'")

    monkeypatch.setattr(setup.runner, "run", run)
    setup.older_spark()
    setup.older_spark()
    assert commands == [["-m", "venv"], ["-m", "pip"]]
    python = tools.older_spark_dir() / "bin" / "python"
    asked = [python, "-c", "import one, other; print(one.found, other.found, sep=', ')"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert found == "its own, of the project\n"


def test_a_failed_download_is_retried(setup, programs, capsys):
    fails_once = "[ -e tried ] || { touch tried; exit 1; }"
    runs = _with_ivy(setup, programs, f"{fails_once}\nmkdir -p jars.new; touch jars.new/{KAFKA}")
    setup.jars()
    assert runs() == 2
    assert "attempt 2 of 3" in capsys.readouterr().out


def test_a_failed_step_is_named_and_the_end_of_its_log_is_shown(
    bootstrap, setup, programs, monkeypatch, capsys
):
    _with_ivy(setup, programs, "seq 100; echo UNRESOLVED: kafka; exit 1")
    monkeypatch.setattr(bootstrap, "Setup", lambda *_: setup)
    assert bootstrap.main(["jars"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "[setup] jars    FAILED: Kafka and Spark's connector failed"
    assert "UNRESOLVED: kafka" in lines
    assert "50" not in lines


def test_ivy_that_fetches_nothing_is_a_failure(setup, bootstrap, programs):
    _with_ivy(setup, programs, "exit 0")
    with pytest.raises(bootstrap.SetupError, match=r"no kafka_\*\.jar"):
        setup.jars()


def test_registry_and_localstack_are_not_default_steps(bootstrap, setup, monkeypatch):
    done = []
    for step in ("python", "java", "redis", "jars", "archive", "registry", "sam", "localstack"):
        monkeypatch.setattr(setup, step, lambda step=step: done.append(step))
    monkeypatch.setattr(bootstrap, "Setup", lambda *_: setup)
    assert bootstrap.main([]) == 0
    assert set(done) == {"python", "java", "redis", "jars"}
    done.clear()
    assert bootstrap.main(["registry", "localstack"]) == 0
    assert set(done) == {"registry", "localstack"}


def test_independent_steps_run_in_parallel(bootstrap, setup, monkeypatch):
    both = threading.Barrier(2, timeout=60)
    for step in ("python", "sam"):
        monkeypatch.setattr(setup, step, both.wait)
    monkeypatch.setattr(bootstrap, "Setup", lambda *_: setup)
    assert bootstrap.main(["sam", "python"]) == 0


def test_each_step_waits_for_those_that_it_needs(bootstrap, setup, monkeypatch):
    done, java_may_end = [], threading.Event()

    def end(step: str) -> None:
        if step == "java":
            assert java_may_end.wait(60)
        done.append(step)
        if step == "python":
            java_may_end.set()

    for step in ("python", "java", "jars", "archive"):
        monkeypatch.setattr(setup, step, functools.partial(end, step))
    monkeypatch.setattr(bootstrap, "Setup", lambda *_: setup)
    assert bootstrap.main(["archive", "jars", "java", "python"]) == 0
    assert done == ["python", "java", "jars", "archive"]


def test_what_needs_a_step_that_failed_does_not_run_and_a_failure_beside_another_step_is_reported(
    bootstrap, setup, monkeypatch, capsys
):
    def fail() -> None:
        raise bootstrap.SetupError("python", "no network")

    done = []
    monkeypatch.setattr(setup, "python", fail)
    monkeypatch.setattr(setup, "jars", lambda: pytest.fail("it ran"))
    monkeypatch.setattr(setup, "sam", lambda: done.append("sam"))
    monkeypatch.setattr(bootstrap, "Setup", lambda *_: setup)
    assert bootstrap.main(["jars", "python", "sam"]) == 1
    assert (done, capsys.readouterr().out) == (["sam"], "[setup] python  FAILED: no network\n")


def test_every_step_is_one_of_the_set_up_and_needs_earlier_ones(bootstrap):
    for number, (step, needed) in enumerate(bootstrap.STEPS.items()):
        assert callable(getattr(bootstrap.Setup, step))
        assert set(needed) <= set(list(bootstrap.STEPS)[:number]), step
    assert set(bootstrap.DEFAULT_STEPS) <= set(bootstrap.STEPS)


@pytest.fixture
def localstack_step(bootstrap, setup, uv, tmp_path, monkeypatch):
    """Return the localstack step with recorded instead of executed commands, and the record."""
    for name in ("localstack_setup/constraints.txt", "localstack-process-executor/pyproject.toml"):
        path = setup.root / "local" / name
        path.parent.mkdir(parents=True)
        path.write_text("")
    (setup.root / "constraints.txt").write_text("")
    ran = []

    def run(step, what, command, **_):
        ran.append(what)
        python = setup.tools / "localstack" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    monkeypatch.setattr(setup.runner, "run", run)
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    return setup.localstack, ran


def test_localstack_is_installed_once_and_again_if_its_executor_changes(setup, localstack_step):
    make, ran = localstack_step
    make()
    make()
    made = ["virtual environment", "packages", "executor", "for this Python", "functions", "runtime client"]
    assert ran == made
    source = setup.root / "local" / "localstack-process-executor" / "localstack_x" / "y.py"
    source.parent.mkdir()
    source.write_text("changed = True")
    make()
    assert ran == made * 2


def test_localstack_gets_an_older_python_if_this_one_is_too_new(
    bootstrap, localstack_step, programs, monkeypatch
):
    make, ran = localstack_step
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    programs("python3.13", "echo not chosen >&2; exit 127")
    with pytest.raises(bootstrap.SetupError, match=r"a Python of 3\.11 to 3\.13, on PATH"):
        make()
    programs("python3.12", "echo Python 3.12.1")
    make()
    assert ran


def test_an_old_python_and_an_unknown_step_are_named(bootstrap, monkeypatch, capsys):
    assert bootstrap.main(["jar"]) == 2
    assert "no such step: jar" in capsys.readouterr().out
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert bootstrap.main([]) == 1
    assert "needs Python 3.11 or newer, this is 3.9.2" in capsys.readouterr().out


def test_the_sources_that_are_not_copied_are_compiled_at_their_places(bootstrap, setup, uv, monkeypatch):
    for name in ("pyproject.toml", "constraints.txt", "clients/python/pyproject.toml"):
        (setup.root / name).parent.mkdir(parents=True, exist_ok=True)
        (setup.root / name).touch()
    setup.venv.mkdir()
    commands = []
    monkeypatch.setattr(setup.runner, "run", lambda *given, **_: commands.append(given[2]))
    setup.python()
    assert commands[-1] == [str(setup.venv_python), "-m", "compileall", "-q", *bootstrap.OWN_SOURCES]
    assert all((tools.project_root() / folder).is_dir() for folder in bootstrap.OWN_SOURCES)


def test_the_class_archives_are_created_once_and_again_if_packages_or_jars_change(setup, programs, tmp_path):
    runs = tmp_path / "runs"
    programs("python", f'echo "$*" >> "{runs}"', setup.venv / "bin")
    (setup.venv / ".keylane-stamp").write_text("1")
    setup.archive()
    setup.archive()
    spark = f"-m keylane_spark.engine.class_archive {setup.tools / 'jars'}"
    kafka = "-m keylane_local.servers.kafka_archive"
    assert runs.read_text().splitlines() == [spark, kafka]
    os.utime(setup.venv / ".keylane-stamp", (1, 1))
    setup.archive()
    assert runs.read_text().splitlines() == [spark, kafka, spark]
    (setup.tools / "jars.json").write_text("{}")
    setup.archive()
    assert runs.read_text().splitlines() == [spark, kafka, spark, spark, kafka]


def test_a_class_archive_that_cannot_be_created_is_skipped(setup, programs, capsys):
    programs("python", "exit 1", setup.venv / "bin")
    setup.archive()
    assert "skipped" in capsys.readouterr().out


def test_sams_environment_is_created_once_and_again_if_its_pins_change(setup, uv, monkeypatch):
    pins = setup.root / "tools" / "sam" / "requirements.txt"
    pins.parent.mkdir(parents=True)
    pins.write_text("aws-sam-cli==1.0\n")
    commands = []

    def run(step, what, command, **_):
        commands.append(command)
        (setup.tools / "sam").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(setup.runner, "run", run)
    setup.sam()
    assert [command[1:3] for command in commands] == [["-m", "venv"], ["pip", "install"]]
    assert "--no-deps" in commands[1]
    assert commands[1][-1] == str(pins)
    setup.sam()
    assert len(commands) == 2
    pins.write_text("aws-sam-cli==1.1\n")
    setup.sam()
    assert len(commands) == 4


def test_uv_is_installed_once_and_gets_the_settings_of_pip(bootstrap, setup, monkeypatch):
    calls = []
    uv = setup.tools / bootstrap.UV / "bin" / "uv"

    def run(step, what, command, *, attempts=1, env=None):
        calls.append((command, env))
        if what == "uv":
            uv.parent.mkdir(parents=True)
            uv.touch()

    monkeypatch.setattr(setup.runner, "run", run)
    monkeypatch.setattr(bootstrap.pip_settings, "for_uv", lambda python: {"UV_DEFAULT_INDEX": python})
    setup._install("sam", "one", setup.venv, "a")
    setup._install("lint", "two", setup.venv, "b")
    python = str(setup.venv_python)
    begins = [[python, "-m", "pip"], [str(uv), "pip", "install"], [str(uv), "pip", "install"]]
    assert [command[:3] for command, _ in calls] == begins
    assert [command[-1] for command, _ in calls] == [bootstrap.UV, "a", "b"]
    assert [env and env["UV_DEFAULT_INDEX"] for _, env in calls] == [None, python, python]
