"""Downloads of jars, by the Ivy that PySpark includes, checked against our list. Standard library only."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from keylane_local import jars as jar_list
from keylane_local import tools
from keylane_local.setup.runner import ATTEMPTS, Runner, SetupError, digest, read_text

TITLE = "Kafka and Spark's connector"
BROKER = "kafka_"
"""The broker's jar begins so."""


class Ivy:
    """Downloads what a file like pom.xml names into folders of the tools.

    `root`: where pom.xml and the list of checksums are. `pyspark_jars`: the folders that may have Ivy.
    """

    def __init__(
        self, runner: Runner, root: Path, folder: Path, pyspark_jars: Callable[[], Iterator[Path]]
    ) -> None:
        self._runner = runner
        self._tools = folder
        self._pyspark_jars = pyspark_jars
        self.list = root / jar_list.LIST
        self._pom = (root / "pom.xml").resolve()

    def refill(self, step: str, folder: str, retrieve: Callable[[str], Path], needed: str) -> None:
        """Fill a folder of jars by `retrieve`, unless it has what pom.xml and the list name.

        Raises SetupError.
        """
        stamp = self._tools / f"{folder}.json"
        wanted = digest(self._pom.read_text(encoding="utf-8"), read_text(self.list) or "")
        present = json.loads(read_text(stamp) or "{}")
        jars = self._tools / folder
        if present.get("inputs") == wanted and all((jars / name).exists() for name in present["jars"]):
            return
        new = retrieve(step)
        self.verify(step, new)
        names = sorted(path.name for path in new.glob("*.jar"))
        if not any(name.startswith(needed) for name in names):
            raise SetupError(step, f"Ivy succeeded but downloaded no {needed}*.jar", self._runner.log(step))
        shutil.rmtree(jars, ignore_errors=True)
        new.rename(jars)
        stamp.write_text(json.dumps({"inputs": wanted, "jars": names}), encoding="utf-8")

    def retrieve_jars(self, step: str) -> Path:
        """Download a broker, and the connector of the newer Spark."""
        return self.retrieve(step, TITLE, self._pom, self._tools / "jars.new", conf="test")

    def retrieve_older_jars(self, step: str) -> Path:
        """Download the connector of OLDER_SPARK."""
        title, new = f"the connector of Spark {tools.OLDER_SPARK}", self._tools / "older-jars.new"
        return self.retrieve(step, title, self._pom, new, spark=tools.OLDER_SPARK)

    def retrieve(
        self, step: str, title: str, pom: Path, folder: Path, *, conf: str = "runtime", spark: str = ""
    ) -> Path:
        """Download what `pom` names into `folder`, a new one of the tools, and return it.

        `spark`: another version than the file's.
        """
        ivy = next((found for each in self._pyspark_jars() for found in each.glob("ivy-*.jar")), None)
        java = tools.find_java()
        if ivy is None or java is None:
            raise SetupError(step, "run the steps python and java first")
        shutil.rmtree(folder, ignore_errors=True)
        # A relative pattern: Ivy would interpret brackets in the folder's path.
        pattern = f"{folder.name}/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, *([f"-Dspark.version={spark}"] if spark else []), "-cp", str(ivy)]
        command += ["org.apache.ivy.Main", "-ivy", str(pom), "-confs", conf]
        command += ["-retrieve", pattern, "-cache", "ivy-cache"]
        if settings := os.environ.get("KEYLANE_IVY_SETTINGS"):
            command += ["-settings", str(Path(settings).absolute())]
        self._runner.run(step, title, command, attempts=ATTEMPTS, cwd=self._tools)
        return folder

    def verify(self, step: str, folder: Path) -> None:
        """Raise SetupError unless every file of `folder` is the one of the list."""
        try:
            jar_list.verify(folder, self.list)
        except jar_list.WrongChecksum as error:
            raise SetupError(step, str(error)) from error
