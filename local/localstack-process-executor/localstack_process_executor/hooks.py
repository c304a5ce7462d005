"""The entry point that LocalStack calls when it starts."""

import os
from importlib.metadata import version

from localstack import config
from localstack.runtime import hooks

from localstack_process_executor.patches import PATCHES
from localstack_process_executor.patching import VARIABLE, apply_patches


@hooks.on_infra_start()
def prepare_process_executor() -> None:
    """Apply the chosen patches before the gateway listens; delete what a killed predecessor has left."""
    apply_patches(os.environ.get(VARIABLE, ""), PATCHES, version("localstack-core"))
    if config.LAMBDA_RUNTIME_EXECUTOR == "process":
        from localstack_process_executor.executor import forget_predecessors

        forget_predecessors()
