"""The runtime executor for LocalStack, with local processes as execution environments."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from localstack import config
from localstack.services.lambda_.invocation.executor_endpoint import (
    ShutdownDuringStartup,
    StatusErrorException,
)
from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import LambdaRuntimeException, RuntimeExecutor

from localstack_process_executor.function_process import FunctionProcess, Invocation, Outcome, Stopped
from localstack_process_executor.interpreters import NoInterpreter, interpreter_for
from localstack_process_executor.runtime_api import HOST, InitError

if TYPE_CHECKING:
    from localstack.services.lambda_.invocation.lambda_models import FunctionVersion

LOG = logging.getLogger(__name__)
_LAYERS_LOCK = threading.Lock()


def base_dir() -> Path:
    """Return the folder of environments and layers: PROCESS_EXECUTOR_DIR, else in LocalStack's tmp."""
    return Path(os.environ.get("PROCESS_EXECUTOR_DIR") or Path(config.dirs.tmp) / "lambda-process")


class ProcessExecutor(RuntimeExecutor):
    """One environment of one version of a function. LocalStack assigns its id."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:  # noqa: A002 - LocalStack's name
        """Set id and function; nothing runs yet."""
        super().__init__(id=id, function_version=function_version)
        self._home = base_dir() / "environments" / id
        self._process: FunctionProcess | None = None
        self._stopped = False

    def start(self, env_vars: dict[str, str]) -> None:
        """Start the process; raise StatusErrorException if the handler cannot be loaded."""
        (self._home / "tmp").mkdir(parents=True, exist_ok=True)
        variables = self._variables(env_vars)
        function = self.function_version.config
        self._process = FunctionProcess(
            [interpreter_for(function.runtime), "-m", "awslambdaric", variables["_HANDLER"]],
            cwd=Path(variables["LAMBDA_TASK_ROOT"]),
            variables=variables,
            log=self._home / "log",
            init_timeout_s=config.LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT,
        )
        if self._stopped:
            raise ShutdownDuringStartup("it was stopped before it started")
        try:
            self._process.start()
        except InitError as error:
            LOG.warning("%s could not start:\n%s", self.function_version.qualified_arn, self.get_logs())
            raise StatusErrorException("the environment could not start", payload=error.payload) from error
        except Stopped:
            raise ShutdownDuringStartup("it was stopped while it started") from None

    def stop(self) -> None:
        """Kill the process and delete its files."""
        self._stopped = True
        if self._process:
            self._process.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Run one invocation; the result has logs in Lambda's format."""
        if self._process is None:
            raise LambdaRuntimeException(f"environment {self.id} was never started")
        invocation = Invocation(
            request_id=payload["invoke-id"],
            arn=payload["invoked-function-arn"],
            trace=payload["trace-id"],
            event=payload["payload"].encode(),
            timeout_s=float(self.function_version.config.timeout),
        )
        try:
            outcome = self._process.invoke(invocation)
        except Stopped:
            raise LambdaRuntimeException(f"environment {self.id} was stopped") from None
        logs = _report(invocation.request_id, self.function_version, outcome)
        return InvocationResult(
            invocation.request_id, outcome.answer.payload, is_error=outcome.answer.failed, logs=logs
        )

    def get_logs(self) -> str:
        """Return the output that has not been returned yet."""
        return self._process.written() if self._process else ""

    def get_address(self) -> str:
        """Return the environment's address, as seen from LocalStack."""
        return HOST

    def get_endpoint_from_executor(self) -> str:
        """Return LocalStack's address, as seen from the environment."""
        return HOST

    def get_runtime_endpoint(self) -> str:
        """Return the address that LocalStack's own init would call. Nothing calls it here."""
        return f"http://{HOST}:{config.GATEWAY_LISTEN[0].port}/_localstack_lambda/{self.id}"

    def _variables(self, env_vars: dict[str, str]) -> dict[str, str]:
        """Return all variables of the process; those of LocalStack and the function override defaults."""
        function = self.function_version.config
        code = str(function.code.get_unzipped_code_location())
        opt = str(layers_dir(self.function_version))
        given = {name: str(value) for name, value in env_vars.items()}
        path = [
            code,
            f"{opt}/python/lib/{function.runtime}/site-packages",
            f"{opt}/python",
            *filter(None, [given.pop("PYTHONPATH", "")]),
        ]
        return {
            "PATH": f"{opt}/bin:/usr/local/bin:/usr/bin:/bin",
            "LANG": "en_US.UTF-8",
            "HOME": str(self._home / "tmp"),
            "TMPDIR": str(self._home / "tmp"),
            "LD_LIBRARY_PATH": f"{code}:{code}/lib:{opt}/lib",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",  # on Lambda, code and layers are read-only
            **given,
            "PYTHONPATH": os.pathsep.join(path),
            "LAMBDA_TASK_ROOT": code,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
        }

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        """Unpack code and layers; raise LambdaRuntimeException if there is no interpreter for the runtime."""
        function = function_version.config
        try:
            interpreter_for(function.runtime or "(an image)")
        except NoInterpreter as error:
            raise LambdaRuntimeException(str(error)) from error
        function.code.prepare_for_execution()
        for layer in function.layers:
            layer.code.prepare_for_execution()
        if len(function.layers) > 1:
            _merge(function_version)

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """Delete the files that belong to this version only."""
        shutil.rmtree(_merged_dir(function_version), ignore_errors=True)


def layers_dir(function_version: FunctionVersion) -> Path:
    """Return the folder that is /opt on Lambda: the only layer's, or the merged layers'."""
    layers = function_version.config.layers
    if len(layers) == 1:
        return Path(layers[0].code.get_unzipped_code_location())
    return _merged_dir(function_version)


def _merged_dir(function_version: FunctionVersion) -> Path:
    return base_dir() / "opt" / str(function_version.config.internal_revision)


def _merge(function_version: FunctionVersion) -> None:
    """Merge the version's layers into one folder; later ones override earlier ones."""
    opt = _merged_dir(function_version)
    with _LAYERS_LOCK:
        if opt.exists():
            return
        opt.parent.mkdir(parents=True, exist_ok=True)
        merged = Path(tempfile.mkdtemp(dir=opt.parent))
        for layer in function_version.config.layers:
            source = layer.code.get_unzipped_code_location()
            shutil.copytree(source, merged, dirs_exist_ok=True, symlinks=True)
        merged.chmod(0o755)
        merged.rename(opt)


def forget_predecessors() -> None:
    """Delete what a killed LocalStack has left behind."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(base_dir())


def _report(request_id: str, version: FunctionVersion, outcome: Outcome) -> str:
    """Return the function's output with Lambda's lines around it."""
    written = (
        outcome.written if not outcome.written or outcome.written.endswith("\n") else f"{outcome.written}\n"
    )
    memory_mb = version.config.memory_size
    error = f"{outcome.answer.payload.decode('utf-8', 'replace')}\n" if outcome.answer.failed else ""
    init = f"\tInit Duration: {outcome.init_ms:.2f} ms" if outcome.init_ms is not None else ""
    return (
        f"START RequestId: {request_id} Version: {version.id.qualifier}\n{written}{error}"
        f"END RequestId: {request_id}\n"
        f"REPORT RequestId: {request_id}\tDuration: {outcome.took_ms:.2f} ms\t"
        f"Billed Duration: {int(outcome.took_ms) + 1} ms\tMemory Size: {memory_mb} MB\t"
        f"Max Memory Used: {outcome.memory_mb or memory_mb} MB{init}\n"
    )
