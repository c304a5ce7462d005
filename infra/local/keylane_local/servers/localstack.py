"""LocalStack, the AWS services that the template is made of, as a process of its own on loopback."""

from __future__ import annotations

import contextlib
import os
import urllib.request
from typing import TYPE_CHECKING, Any

from keylane_local.errors import ToolMissing
from keylane_local.process.ports import HOST
from keylane_local.process.processes import Program
from keylane_local.tools import lambda_python, localstack_python

if TYPE_CHECKING:
    from pathlib import Path

NAME = "localstack"
REGION = "us-east-1"
ACCOUNT = "000000000000"
START_TIMEOUT_S = 90.0
SERVICES = (
    *("apigateway", "cloudformation", "iam", "lambda", "logs"),
    *("s3", "secretsmanager", "sqs", "ssm", "sts"),
)
# Any will do, as long as a client finds some.
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
# A user's own profile must not reach LocalStack, whose inner clients would look for it; nor other packages.
_NOT_PASSED = dict.fromkeys(("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "PYTHONPATH"))
_HEALTH_TIMEOUT_S = 2.0


class LocalStack:
    """One LocalStack in host mode. What was made in it is gone when it stops."""

    name = NAME

    def __init__(self, home: Path, *, run: Path, log: Path, port: int) -> None:
        """Place it: `home` is its data folder, `port` that of all its services."""
        self.home = home.absolute()
        self.log = log
        self.port = port
        self.program = Program(
            NAME,
            [localstack_python(), "-m", "localstack.runtime.main"],
            pid_file=run / "localstack.json",
            log=log,
            cwd=self.home,
            env=self._variables(),
            stop_timeout_s=8,  # it takes its time to stop functions, of which nothing is kept anyway
        )

    @property
    def url(self) -> str:
        """Where all services answer, without a slash at its end."""
        return f"http://{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.program.running

    def environment(self) -> dict[str, str]:
        """Return the variables that lead AWS clients and tools to it."""
        return {**_CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": self.url}

    def client(self, service: str) -> Any:
        """Return an AWS client of `service`; who asks for it closes it."""
        import botocore.session  # noqa: PLC0415 - it takes long to import, and `keylane up` needs none
        from botocore.config import Config  # noqa: PLC0415

        # Without this the user's AWS_PROFILE would have a say.
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
        """Start it, unless it runs; raise ToolMissing where the set-up has not made it."""
        if not localstack_python().exists():
            raise ToolMissing("LocalStack is not installed: run `make setup-localstack`")
        self.home.mkdir(parents=True, exist_ok=True)
        self.program.start()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it takes requests; raise PartFailed with the end of its log otherwise."""
        self.program.wait_until(self.answers, timeout_s)

    def answers(self) -> bool:
        """Tell whether it says of itself that it is up."""
        with contextlib.suppress(OSError):
            request = f"{self.url}/_localstack/health"
            with urllib.request.urlopen(request, timeout=_HEALTH_TIMEOUT_S) as answer:  # noqa: S310 - loopback
                return bool(answer.status == 200) and self.program.said("Ready.")  # noqa: PLR2004
        return False

    def stop(self) -> None:
        """Stop it, with the functions that it runs; its log stays."""
        self.program.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.program.kill()

    def _variables(self) -> dict[str, str | None]:
        return {
            **_NOT_PASSED,
            **_CREDENTIALS,
            "AWS_EC2_METADATA_DISABLED": "true",
            "FILESYSTEM_ROOT": str(self.home),
            "LOCALSTACK_VOLUME_DIR": str(self.home / "volume"),
            "CONFIG_DIR": str(self.home),  # else ~/.localstack has a say
            "OVERRIDE_IN_DOCKER": "0",  # it guesses, and would write to /var/lib
            "GATEWAY_LISTEN": f"{HOST}:{self.port}",
            # Else queues' addresses have a name that only the internet's DNS resolves.
            "LOCALSTACK_HOST": f"{HOST}:{self.port}",
            "SQS_ENDPOINT_STRATEGY": "path",
            "GATEWAY_WORKER_COUNT": "64",
            "SERVICES": ",".join(SERVICES),
            # Nothing calls home: no usage events, no certificate, no catalogue of what newer versions can do.
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            **dict.fromkeys(("API_ENDPOINT", "ANALYTICS_API"), f"http://{HOST}:1"),
            "DNS_ADDRESS": "0",
            # A queue that was empty is asked again soon, and a function that failed is tried again soon.
            "LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC": "0.2",
            "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "1",
            "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_ERROR_SEC": "2",
            "LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT": "60",
            # LocalStack's own, docker, is for the asking: its containers don't see our loopback addresses.
            "LAMBDA_RUNTIME_EXECUTOR": os.environ.get("LAMBDA_RUNTIME_EXECUTOR", "process"),
            "PROCESS_EXECUTOR_PYTHON": str(lambda_python()),
            "PROCESS_EXECUTOR_DIR": str(self.home / "lambda"),
        }
