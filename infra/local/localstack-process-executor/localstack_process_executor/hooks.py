"""The entry point that LocalStack calls when it starts."""

from __future__ import annotations

from localstack import config
from localstack.runtime import hooks

from localstack_process_executor import api_updates, patches, rollback


@hooks.on_infra_start()
def prepare_process_executor() -> None:
    """Patch LocalStack before its gateway listens; delete what a killed predecessor has left."""
    patches.listen_where_told()
    patches.forget_ended_threads()
    patches.resolve_after_transforms()
    patches.let_conditions_change()
    patches.compare_as_text()
    patches.keep_bodies()
    api_updates.apply()
    rollback.apply()
    if config.LAMBDA_RUNTIME_EXECUTOR == "process":
        from localstack_process_executor.executor import forget_predecessors

        forget_predecessors()
