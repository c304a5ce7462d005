"""Rollback of failed stack updates, which CloudFormation does and LocalStack 4.14.0 does not.

LocalStack keeps the changes made so far, deletes the resources that were to be replaced, and forgets those
that the update had not reached, so that the next deployment finds them and fails. Here,

1. each change of a resource is recorded;
2. after a failure, no resource from before is deleted; created ones are deleted and changed ones restored, in
   reverse order;
3. the stack then has its former content and the status UPDATE_ROLLBACK_COMPLETE.
"""

import logging
from dataclasses import dataclass
from typing import Any

LOG = logging.getLogger(__name__)
_KEPT = (
    "template",
    "processed_template",
    "template_body",
    "description",
    "resolved_parameters",
    "resolved_resources",
    "resolved_outputs",
    "resolved_exports",
)


@dataclass(frozen=True, slots=True)
class _Step:
    """A recorded change of a resource.

    `before`: its former properties, None if the update created it. `made`: its properties after the change.
    """

    name: str
    kind: str
    before: Any
    made: dict[str, Any]


def apply() -> None:
    """Record the changes of updates, and roll back updates that fail."""
    from localstack.aws.api.cloudformation import ChangeAction, ExecutionStatus, StackStatus
    from localstack.services.cloudformation.engine.v2.change_set_model_executor import ChangeSetModelExecutor
    from localstack.services.cloudformation.resource_provider import OperationStatus
    from localstack.services.cloudformation.v2.entities import ChangeSet

    process, act = ChangeSetModelExecutor.process, ChangeSetModelExecutor._execute_resource_action  # noqa: SLF001
    set_execution_status = ChangeSet.set_execution_status

    def process_noting(self: Any) -> None:
        stack = self._change_set.stack
        is_update = stack.status == StackStatus.UPDATE_IN_PROGRESS
        self.steps = []
        try:
            process(self)
        except Exception:
            if is_update:
                self._change_set.kept = {name: getattr(stack, name) for name in _KEPT}
                stack.set_stack_status(StackStatus.UPDATE_ROLLBACK_IN_PROGRESS)
                self._deferred_actions.clear()
                for step in reversed(self.steps):
                    _take_back(self, step, act)
            raise

    def act_noting(self: Any, **given: Any) -> Any:
        event = act(self, **given)
        if event.status == OperationStatus.SUCCESS and given["action"] != ChangeAction.Remove:
            name = given["logical_resource_id"]
            made = self.resources[name]["Properties"]
            self.steps.append(_Step(name, given["resource_type"], given["before_properties"], made))
        return event

    def set_execution_status_restoring(self: Any, status: Any) -> None:
        set_execution_status(self, status)
        if status == ExecutionStatus.EXECUTE_FAILED and (kept := getattr(self, "kept", None)):
            for name, value in kept.items():
                setattr(self.stack, name, value)
            self.stack.set_stack_status(StackStatus.UPDATE_ROLLBACK_COMPLETE)

    ChangeSetModelExecutor.process = process_noting
    ChangeSetModelExecutor._execute_resource_action = act_noting  # noqa: SLF001
    ChangeSet.set_execution_status = set_execution_status_restoring


def _take_back(executor: Any, step: _Step, act: Any) -> None:
    """Delete a created resource or restore an updated one; log a failure and continue."""
    from localstack.aws.api.cloudformation import ChangeAction
    from localstack.services.cloudformation.engine.v2.change_set_model_preproc import PreprocProperties
    from localstack.services.cloudformation.resource_provider import OperationStatus

    event = act(
        executor,
        action=ChangeAction.Remove if step.before is None else ChangeAction.Modify,
        logical_resource_id=step.name,
        resource_type=step.kind,
        before_properties=PreprocProperties(properties=step.made),
        after_properties=step.before,
        part_of_replacement=step.before is None,
    )
    if event.status != OperationStatus.SUCCESS:
        LOG.warning("%s could not be rolled back: %s", step.name, event.message)
