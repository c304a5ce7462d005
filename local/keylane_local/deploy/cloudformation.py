"""CloudFormation stacks, created and updated by change sets, as `sam deploy` does."""

import contextlib
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from keylane_local.errors import StackError
from keylane_local.process.processes import wait_until

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
TIMEOUT_S = 300.0
_POLL_S = 0.1
_UNFINISHED = "_IN_PROGRESS"
# What a failed first deployment leaves: such a stack cannot be updated, only deleted.
_NOT_UPDATABLE = {
    "CREATE_FAILED",
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "REVIEW_IN_PROGRESS",
    "DELETE_FAILED",
}
_DELETED = {None, "DELETE_COMPLETE"}
_DEPLOYED = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


class DeployFailed(StackError):
    """The deployment failed; the text has CloudFormation's reasons."""


@contextlib.contextmanager
def translate_aws_errors() -> Iterator[None]:
    """Raise errors of the AWS client as DeployFailed."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise DeployFailed(str(error)) from error


class CloudStack:
    """The stack `name`, managed with a CloudFormation client."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    @property
    def status(self) -> str | None:
        """The stack's status, as CloudFormation names it; None if there is no such stack."""
        description = self._description()
        return str(description["StackStatus"]) if description else None

    def outputs(self) -> dict[str, str]:
        """Return the template's outputs by name."""
        description = self._description() or {}
        return {each["OutputKey"]: each["OutputValue"] for each in description.get("Outputs", [])}

    def deploy(self, template_url: str, parameters: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> bool:
        """Create or update the stack; return whether anything changed.

        Raises DeployFailed, after CloudFormation has rolled back.
        """
        status = self.status
        if status in _NOT_UPDATABLE:
            self.delete(timeout_s)
            status = None
        change_set = f"keylane-{uuid.uuid4().hex[:12]}"
        known = {"StackName": self.name, "ChangeSetName": change_set}
        self.client.create_change_set(
            **known,
            TemplateURL=template_url,
            ChangeSetType="UPDATE" if status else "CREATE",
            Capabilities=CAPABILITIES,
            Parameters=[{"ParameterKey": key, "ParameterValue": text} for key, text in parameters.items()],
        )
        if not self._is_executable(known, timeout_s):
            return False
        began = time.time()
        self.client.execute_change_set(**known)
        wait_until(lambda: self.status in _DEPLOYED or self._has_settled(), timeout_s, _POLL_S)
        self._check_status(_DEPLOYED, began)
        return True

    def delete(self, timeout_s: float = TIMEOUT_S) -> None:
        """Delete the stack and its resources; raise DeployFailed if that fails."""
        began = time.time()
        self.client.delete_stack(StackName=self.name)
        wait_until(lambda: self.status in _DELETED or self._has_settled(), timeout_s, _POLL_S)
        self._check_status(_DELETED, began)

    def resource(self, logical_id: str) -> str:
        """Return the physical id of a resource."""
        found = self.client.describe_stack_resource(StackName=self.name, LogicalResourceId=logical_id)
        return str(found["StackResourceDetail"]["PhysicalResourceId"])

    def _description(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.client.describe_stacks(StackName=self.name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        return found

    def _check_status(self, wanted: Collection[str | None], began: float) -> None:
        if (status := self.status) not in wanted:
            raise DeployFailed(f"the stack {self.name} is {status}: {self._reasons(began)}")

    def _has_settled(self) -> bool:
        return not (self.status or "").endswith(_UNFINISHED)

    def _is_executable(self, known: Mapping[str, str], timeout_s: float) -> bool:
        """Wait for the change set; return whether it changes anything."""
        found: dict[str, Any] = {}

        def has_settled() -> bool:
            found.update(self.client.describe_change_set(**known))
            return found["Status"] in {"CREATE_COMPLETE", "FAILED"}

        if not wait_until(has_settled, timeout_s, _POLL_S):
            raise DeployFailed(f"the change set of {self.name} is {found['Status']} after {timeout_s:.0f} s")
        if found["Status"] == "CREATE_COMPLETE":
            return True
        reason = found.get("StatusReason") or "CloudFormation gave no reason"
        with contextlib.suppress(ClientError):
            self.client.delete_change_set(**known)
        if "didn't contain changes" in reason or "No updates" in reason:
            return False
        raise DeployFailed(f"the change set of {self.name} failed: {reason}")

    def _reasons(self, began: float) -> str:
        """Return CloudFormation's reasons for the resources that failed since `began` (Unix time)."""
        events = self.client.describe_stack_events(StackName=self.name)["StackEvents"]
        failed = [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', event['ResourceStatus'])}"
            for event in reversed(events)
            if event["ResourceStatus"].endswith("_FAILED") and event["Timestamp"].timestamp() >= began - 1
        ]
        return "; ".join(dict.fromkeys(failed)) or "CloudFormation gave no reason"
