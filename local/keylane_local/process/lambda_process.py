"""A function in a process of its own, under AWS's runtime interface client: `keylane invoke`, and tests."""

import os
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from localstack_process_executor.function_process import FunctionProcess, Invocation
from localstack_process_executor.runtime_api import Answer

REGION = "us-east-1"
INIT_TIMEOUT_S = 10.0
# awslambdaric's native module is built for Linux alone; elsewhere a replacement comes last on the path.
_FALLBACK = {"darwin": (str(Path(__file__).parent / "fallback"),)}
# Variables of this process that any process needs, and so every function gets.
_PASSED = ("AWS_LAMBDA_LOG_FORMAT", "PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Function:
    """A function as a template describes it: code, layer, handler, variables and limits."""

    name: str
    code: Path
    layer: Path
    log: Path
    handler: str = "handler.lambda_handler"
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 29.0
    memory_mb: int = 512

    def environment(self) -> dict[str, str]:
        """Return the variables that Lambda sets, with the function's own over them."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return {
            **{name: os.environ[name] for name in _PASSED if name in os.environ},
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "PYTHONPATH": os.pathsep.join([str(self.layer), *_FALLBACK.get(sys.platform, ())]),
            "PYTHONUNBUFFERED": "1",
            "LAMBDA_TASK_ROOT": str(self.code),
            "_HANDLER": self.handler,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{python}",
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **self.variables,
        }


class LambdaProcess(FunctionProcess):
    """One environment of a function, in a `with` statement. It is warm once that begins."""

    def __init__(self, function: Function) -> None:
        command = [sys.executable, "-m", "awslambdaric", function.handler]
        super().__init__(
            command,
            cwd=function.code,
            variables=function.environment(),
            log=function.log,
            init_timeout_s=INIT_TIMEOUT_S,
        )
        self.function = function

    def __enter__(self) -> Self:
        """Start the process and wait until it is warm. Raises InitError."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, event: bytes, request_id: str) -> Answer:
        """Run one invocation; a crash or a timeout becomes Lambda's error."""
        arn = f"arn:aws:lambda:{REGION}:000000000000:function:{self.function.name}"
        trace = f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0"
        return self.invoke(Invocation(request_id, arn, trace, event, self.function.timeout_s)).answer
