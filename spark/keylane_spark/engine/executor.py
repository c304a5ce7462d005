"""An executor on Kubernetes, in the job's own image: `python -m keylane_spark.engine.executor`.

Spark starts an executor's pod with the argument `executor`, and says the rest in environment variables. The
image that Spark builds has a shell script for it (`entrypoint.sh`); PySpark's package has none, so the pod's
template (in the chart of infra/kubernetes) has this module as its command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyspark

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""The backend's arguments, by Spark's variables."""
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def command(environment: Mapping[str, str]) -> list[str]:
    """The program and its arguments. Raises KeyError for a variable that Spark has not set."""
    java = Path(environment["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in environment else Path("java")
    options = {
        int(found[1]): value for name, value in environment.items() if (found := _OPTION.fullmatch(name))
    }
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    class_path = [environment.get("SPARK_CLASSPATH", ""), str(Path(pyspark.__file__).parent / "jars" / "*")]
    return [
        str(java),
        *(value for _, value in sorted(options.items())),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(filter(None, class_path)),
        BACKEND,
        *(each for name, variable in ARGUMENTS.items() for each in (name, environment[variable])),
    ]


def run(environment: Mapping[str, str]) -> None:
    """Become the executor: its JVM gets the pod's signals, and its exit code is the container's."""
    program, *arguments = command(environment)
    os.execvpe(program, [program, *arguments], dict(environment))  # noqa: S606 (Spark says what to start)


if __name__ == "__main__":
    run(os.environ)
