"""Patches for LocalStack 4.14. Each function fixes one problem, which its docstring describes.

They import LocalStack when they are applied. PATCHES has the names by which they are chosen.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def listen_where_told() -> None:
    """Listen on the address of GATEWAY_LISTEN: LocalStack uses its port only, on every interface."""
    from localstack import config
    from localstack.runtime.server import twisted

    theirs = twisted.endpoints
    hosts = {address.port: address.host for address in config.GATEWAY_LISTEN}

    def endpoint(reactor: Any, port: int) -> Any:
        return theirs.TCP4ServerEndpoint(reactor, port, interface=hosts[port])

    twisted.endpoints = SimpleNamespace(
        TCP4ServerEndpoint=endpoint, TCP6ServerEndpoint=theirs.TCP6ServerEndpoint
    )


def forget_ended_threads() -> None:
    """Release the metric thread of each invocation: LocalStack keeps them, and fails at about 32,000."""
    from localstack.services.lambda_.invocation import version_manager

    version_manager.start_thread = functools.partial(version_manager.start_thread, _shutdown_hook=False)


def resolve_after_transforms() -> None:
    """Resolve references to generated resources: LocalStack resolves them before AWS::Serverless is expanded.

    Only Fn::Transform needs that early resolution, so it is skipped in templates without Fn::Transform.
    """
    from localstack.services.cloudformation.engine.v2 import change_set_model_transform

    transformer = change_set_model_transform.ChangeSetModelTransform
    theirs = transformer._execute_local_transforms  # noqa: SLF001

    def execute_local_transforms(self: Any) -> None:
        if _mentions(self._before_template, "Fn::Transform") or _mentions(
            self._after_template, "Fn::Transform"
        ):
            theirs(self)

    transformer._execute_local_transforms = execute_local_transforms  # noqa: SLF001


def let_conditions_change() -> None:
    """Let an update create or remove a conditional resource to which others refer in an Fn::If.

    LocalStack resolves both branches, before and after the update, and rejects the template if a resource's
    condition is false in one of them.
    """
    from localstack.services.cloudformation.engine.v2 import change_set_model_preproc
    from localstack.services.cloudformation.engine.validations import ValidationError

    processor = change_set_model_preproc.ChangeSetModelPreproc
    theirs = processor._resolve_attribute  # noqa: SLF001

    def resolve_attribute(self: Any, arguments: Any, select_before: bool) -> Any:
        try:
            return theirs(self, arguments, select_before)
        except ValidationError:
            name = (arguments.split(".") if isinstance(arguments, str) else arguments)[0]
            # Raises if the template has no such resource at all.
            self._get_node_resource_for(
                resource_name=name, node_template=self._change_set.update_model.node_template
            )
            return ""  # the branch that is not used

    processor._resolve_attribute = resolve_attribute  # noqa: SLF001


def compare_as_text() -> None:
    """Compare strings in Fn::Equals, like CloudFormation: to LocalStack a Number's default 0 is not "0"."""
    from localstack.services.cloudformation.engine.v2 import change_set_model_preproc

    def visit_equals(self: Any, node: Any) -> Any:
        arguments = self.visit(node.arguments)
        return self._cached_apply(
            scope=node.scope,
            arguments_delta=arguments,
            resolver=lambda pair: _text(pair[0]) == _text(pair[1]),
        )

    processor = change_set_model_preproc.ChangeSetModelPreproc
    processor.visit_node_intrinsic_function_fn_equals = visit_equals


def keep_bodies() -> None:
    """Pass form bodies to functions unchanged: LocalStack parses them, and loses those of a PUT.

    curl -d declares every body as a form.
    """
    from localstack.services.apigateway.next_gen.execute_api.handlers import parse

    parse.restore_payload = lambda request: request.get_data(parse_form_data=False)


def update_apis() -> None:
    """Update REST APIs, stages and deployments: LocalStack's stacks fail at a changed route."""
    from localstack_process_executor import api_updates

    api_updates.apply()


def roll_back() -> None:
    """Roll back failed updates of stacks: LocalStack leaves half of an update, and the next one fails."""
    from localstack_process_executor import rollback

    rollback.apply()


PATCHES: dict[str, Callable[[], None]] = {
    "listen-address": listen_where_told,
    "lambda-threads": forget_ended_threads,
    "cloudformation-transforms": resolve_after_transforms,
    "cloudformation-conditions": let_conditions_change,
    "cloudformation-equals": compare_as_text,
    "cloudformation-rollback": roll_back,
    "apigateway-bodies": keep_bodies,
    "apigateway-updates": update_apis,
}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _mentions(template: Any, name: str) -> bool:
    if isinstance(template, dict):
        return name in template or any(_mentions(each, name) for each in template.values())
    return isinstance(template, list) and any(_mentions(each, name) for each in template)
