"""LocalStack, which provides the AWS services that the template uses, as a local process."""

import contextlib
import os
import urllib.request
from pathlib import Path
from typing import Any

from keylane_local.errors import ToolMissing
from keylane_local.process.ports import HOST
from keylane_local.process.program import Program, ProgramPart
from keylane_local.tools import lambda_python, localstack_python

NAME = "localstack"
REGION = "us-east-1"
START_TIMEOUT_S = 90.0
SERVICES = (
    *("apigateway", "cloudformation", "iam", "lambda", "logs"),
    *("s3", "secretsmanager", "sqs", "ssm", "sts"),
)
# LocalStack accepts any credentials, but clients need some.
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
# LocalStack's inner clients would look for the user's profile; PYTHONPATH would lead to foreign packages.
_NOT_PASSED = dict.fromkeys(("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "PYTHONPATH"))
_HEALTH_TIMEOUT_S = 2.0


class LocalStack(ProgramPart):
    """One LocalStack in host mode. It keeps nothing when it stops."""

    name = NAME

    def __init__(self, home: Path, *, run: Path, log: Path, port: int) -> None:
        """Set data folder (`home`), folder of the pid file (`run`), log file and the port of all services."""
        self.home = home.absolute()
        self.port = port
        self.program = Program(
            NAME,
            [localstack_python(), "-m", "localstack.runtime.main"],
            pid_file=run / "localstack.json",
            log=log,
            cwd=self.home,
            env=self._variables(),
            stop_timeout_s=8,  # stopping functions takes longer, and nothing of them is kept
        )

    @property
    def url(self) -> str:
        """The endpoint of all services, without a trailing slash."""
        return f"http://{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables that make AWS clients and tools use it."""
        return {**_CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": self.url}

    def client(self, service: str) -> Any:
        """Return an AWS client for `service`. The caller closes it."""
        import botocore.session  # noqa: PLC0415 - slow to import, and `keylane up` does not need it
        from botocore.config import Config  # noqa: PLC0415

        # The user's AWS_PROFILE must not apply.
        session = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
        return session.create_client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}),
        )

    def start(self) -> None:
        """Start it, unless it runs; raise ToolMissing if it is not installed."""
        if not localstack_python().exists():
            raise ToolMissing(
                "LocalStack is not installed: run `make setup-localstack` in a checkout of Keylane"
            )
        self.home.mkdir(parents=True, exist_ok=True)
        self.program.start()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it accepts requests; raise PartFailed otherwise."""
        self.program.wait_until(self.answers, timeout_s)

    def answers(self) -> bool:
        """Return whether its health check and its log say that it is ready."""
        with contextlib.suppress(OSError):
            request = f"{self.url}/_localstack/health"
            with urllib.request.urlopen(request, timeout=_HEALTH_TIMEOUT_S) as answer:  # noqa: S310 - loopback
                return bool(answer.status == 200) and self.program.said("Ready.")  # noqa: PLR2004
        return False

    def _variables(self) -> dict[str, str | None]:
        return {
            **_NOT_PASSED,
            **_CREDENTIALS,
            "AWS_EC2_METADATA_DISABLED": "true",
            "FILESYSTEM_ROOT": str(self.home),
            "LOCALSTACK_VOLUME_DIR": str(self.home / "volume"),
            "CONFIG_DIR": str(self.home),  # else it reads ~/.localstack
            "OVERRIDE_IN_DOCKER": "0",  # it may guess wrong, and write to /var/lib
            "GATEWAY_LISTEN": f"{HOST}:{self.port}",
            # Otherwise queue URLs have a host name that only public DNS resolves.
            "LOCALSTACK_HOST": f"{HOST}:{self.port}",
            "SQS_ENDPOINT_STRATEGY": "path",
            "GATEWAY_WORKER_COUNT": "64",
            "SERVICES": ",".join(SERVICES),
            # No request leaves this machine: no usage events, no certificate, no catalog of newer versions.
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            **dict.fromkeys(("API_ENDPOINT", "ANALYTICS_API"), f"http://{HOST}:1"),
            "DNS_ADDRESS": "0",
            # Empty queues are polled again soon, and failed functions retried soon.
            "LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC": "0.2",
            "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "1",
            "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_ERROR_SEC": "2",
            "LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT": "60",
            # LocalStack's default, docker, can be chosen; its containers do not reach our loopback addresses.
            "LAMBDA_RUNTIME_EXECUTOR": os.environ.get("LAMBDA_RUNTIME_EXECUTOR", "process"),
            # The patches of CloudFormation and API Gateway, without which the template cannot be updated.
            "PROCESS_EXECUTOR_PATCHES": os.environ.get("PROCESS_EXECUTOR_PATCHES", "all"),
            "PROCESS_EXECUTOR_PYTHON": str(lambda_python()),
            "PROCESS_EXECUTOR_DIR": str(self.home / "lambda"),
        }
