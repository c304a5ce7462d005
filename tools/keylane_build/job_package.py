"""The job as a package for a managed Spark: `python -m keylane_build.job_package --to build/job`.

main.py: the script for spark-submit. python.zip: the job and its imports, except PySpark.
jars/: the Kafka connector of a version of Spark, and AWS' jar for MSK with IAM.
keylane.toml: the configuration.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from keylane_build.layer import pin_requirements
from keylane_local import jars as jar_list
from keylane_local.deploy.packaging import archive
from keylane_local.tools import OLDER_SPARK, jars_dir, project_root
from keylane_spark.engine.connector_jars import CONNECTOR, IAM

EXTRAS = ("spark", "registry", "msk-iam", "otel")
PYTHON = "3.11"
"""Of the cluster, unless another one is named. `infra/pipeline.yaml` starts it on EMR Serverless."""
IN_SPARK = frozenset({"pyspark", "py4j"})
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")
MAIN = "from keylane_spark.__main__ import run\n\nrun()\n"


def build(folder: Path, config: Path, python_version: str, spark: str = pyspark.__version__) -> None:
    """Refill `folder`. Raises CalledProcessError of pip; FileNotFoundError and WrongChecksum for the jars."""
    shutil.rmtree(folder, ignore_errors=True)
    jars = folder / "jars"
    jars.mkdir(parents=True)
    wanted = (*CONNECTOR, IAM)
    found = [each for each in jars_dir(spark).glob("*.jar") if each.name.startswith(wanted)]
    if not all(any(each.name.startswith(name) for each in found) for name in wanted):
        raise FileNotFoundError(f"the Kafka connector is missing: run `make package-job SPARK={spark}`")
    for each in found:
        shutil.copy(each, jars)
    jar_list.verify(jars, project_root() / jar_list.LIST)
    shutil.copy(config, folder / "keylane.toml")
    (folder / "main.py").write_text(MAIN, encoding="utf-8")
    with tempfile.TemporaryDirectory() as work:
        target = Path(work)
        _install(target, python_version)
        for source in ("layers/keylane/python/keylane", "spark/keylane_spark"):
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(project_root() / source, target / Path(source).name, ignore=unwanted)
        (folder / "python.zip").write_bytes(archive(target))


def list_requirements() -> list[str]:
    """Return pip's arguments, one pinned package each."""
    return [f"{name}=={version}" for name, version in pin_requirements(EXTRAS, IN_SPARK).items()]


def _install(target: Path, python_version: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-compile", "--only-binary=:all:", "--implementation", "cp"]
    command += ["--python-version", python_version, "--target", str(target)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, *list_requirements()], check=True)


def main() -> None:
    """Build the package and print the sizes of its files."""
    parser = argparse.ArgumentParser(prog="keylane_build.job_package")
    parser.add_argument(
        "--to", type=Path, default=project_root() / "build" / "job", help="default: build/job"
    )
    parser.add_argument(
        "--config", type=Path, default=project_root() / "keylane.toml", help="default: keylane.toml"
    )
    parser.add_argument("--python-version", default=PYTHON, help=f"of the cluster; default: {PYTHON}")
    spark, versions = pyspark.__version__, (OLDER_SPARK, pyspark.__version__)
    parser.add_argument("--spark", choices=versions, default=spark, help=f"of the cluster; default: {spark}")
    options = parser.parse_args()
    build(options.to, options.config, options.python_version, options.spark)
    for each in sorted(path for path in options.to.rglob("*") if path.is_file()):
        print(f"{each.stat().st_size / 1e6:7.1f} MB {each.relative_to(options.to)}")


if __name__ == "__main__":
    main()
