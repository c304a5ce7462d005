"""What LocalStack 4.14.0 does that it should not. Each function mends one thing, and says which."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any


def listen_where_told() -> None:
    """Listen on the address of GATEWAY_LISTEN: its server takes the port alone, on every interface."""
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
    """Don't keep each invocation's metric thread: it starts one and holds it, and fails at some 32,000."""
    from localstack.services.lambda_.invocation import version_manager

    version_manager.start_thread = functools.partial(version_manager.start_thread, _shutdown_hook=False)


def resolve_after_transforms() -> None:
    """Let a template refer to what AWS::Serverless makes of it: references are looked up before it is made.

    That early look is for Fn::Transform alone, so it is left out where a template has none.
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
    """Let an update make a resource that was not there, or remove one, though others name it in an Fn::If.

    Both sides of each branch are looked up, the one before the update and the one after it; a resource whose
    condition is false on one of them is taken for a mistake in the template.
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
            # Raises where there is no such resource at all.
            self._get_node_resource_for(
                resource_name=name, node_template=self._change_set.update_model.node_template
            )
            return ""  # of the side that is not taken

    processor._resolve_attribute = resolve_attribute  # noqa: SLF001


def compare_as_text() -> None:
    """Let Fn::Equals compare text, as CloudFormation does: to LocalStack a Number's default 0 is not "0"."""
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
    """Hand the bodies of forms to functions as they came: it reads them as forms, and loses those of a PUT.

    What curl sends with -d says of itself that it is a form, whatever it is.
    """
    from localstack.services.apigateway.next_gen.execute_api.handlers import parse

    parse.restore_payload = lambda request: request.get_data(parse_form_data=False)


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _mentions(template: Any, name: str) -> bool:
    if isinstance(template, dict):
        return name in template or any(_mentions(each, name) for each in template.values())
    return isinstance(template, list) and any(_mentions(each, name) for each in template)
