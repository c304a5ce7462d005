"""Stacks of CloudFormation by change sets, as `sam deploy` makes them: created or updated, or taken back."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from keylane_local.errors import StackError
from keylane_local.process.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
TIMEOUT_S = 300.0
_POLL_S = 0.1
_UNFINISHED = "_IN_PROGRESS"
# Such a stack can't be updated: what is left of a first deployment that failed.
_STILLBORN = {
    "CREATE_FAILED",
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "REVIEW_IN_PROGRESS",
    "DELETE_FAILED",
}
_DELETED = {None, "DELETE_COMPLETE"}
_DEPLOYED = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


class DeployFailed(StackError):
    """The stack is not as the template has it; the text has the reasons that CloudFormation gave."""


@contextlib.contextmanager
def translate_aws_errors() -> Iterator[None]:
    """Raise AWS's refusals, and its absence, as DeployFailed."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise DeployFailed(str(error)) from error


class CloudStack:
    """The stack `name`, by an AWS client of CloudFormation."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    @property
    def status(self) -> str | None:
        """CloudFormation's word for its state; None where there is no such stack."""
        description = self._description()
        return str(description["StackStatus"]) if description else None

    def outputs(self) -> dict[str, str]:
        """Return what the template puts out, by name."""
        description = self._description() or {}
        return {each["OutputKey"]: each["OutputValue"] for each in description.get("Outputs", [])}

    def deploy(self, template_url: str, parameters: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> bool:
        """Make the stack what the template says; tell whether anything changed.

        Raises DeployFailed; CloudFormation has then taken back what it had done.
        """
        status = self.status
        if status in _STILLBORN:
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
        if self.status not in _DEPLOYED:
            raise DeployFailed(f"the stack {self.name} is {self.status}: {self._reasons(began)}")
        return True

    def delete(self, timeout_s: float = TIMEOUT_S) -> None:
        """Delete it, with what it made; raise DeployFailed where that fails."""
        began = time.time()
        self.client.delete_stack(StackName=self.name)
        wait_until(
            lambda: self.status in {None, "DELETE_COMPLETE"} or self._has_settled(), timeout_s, _POLL_S
        )
        if self.status not in {None, "DELETE_COMPLETE"}:
            raise DeployFailed(f"the stack {self.name} is {self.status}: {self._reasons(began)}")

    def resource(self, logical_id: str) -> str:
        """Return the physical id of one of its resources."""
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

    def _has_settled(self) -> bool:
        return not (self.status or "").endswith(_UNFINISHED)

    def _is_executable(self, known: Mapping[str, str], timeout_s: float) -> bool:
        """Wait for the change set; tell whether it changes anything."""
        found: dict[str, Any] = {}

        def has_settled() -> bool:
            found.update(self.client.describe_change_set(**known))
            return found["Status"] in {"CREATE_COMPLETE", "FAILED"}

        if not wait_until(has_settled, timeout_s, _POLL_S):
            raise DeployFailed(f"the change set is {found['Status']} after {timeout_s:.0f} s")
        if found["Status"] == "CREATE_COMPLETE":
            return True
        reason = found.get("StatusReason") or "CloudFormation gave no reason"
        with contextlib.suppress(ClientError):
            self.client.delete_change_set(**known)
        if "didn't contain changes" in reason or "No updates" in reason:
            return False
        raise DeployFailed(f"the change set of {self.name} failed: {reason}")

    def _reasons(self, began: float) -> str:
        """Return what CloudFormation says of the resources that failed since `began`."""
        events = self.client.describe_stack_events(StackName=self.name)["StackEvents"]
        failed = [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', event['ResourceStatus'])}"
            for event in reversed(events)
            if event["ResourceStatus"].endswith("_FAILED") and event["Timestamp"].timestamp() >= began - 1
        ]
        return "; ".join(dict.fromkeys(failed)) or "no reason was given"
