"""The plugin with which LocalStack finds the executor: LAMBDA_RUNTIME_EXECUTOR=process."""

from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    """Loads the executor when the first function is created."""

    name = "process"

    def load(self, *_: object, **__: object) -> type:
        """Return the executor's class."""
        from localstack_process_executor.executor import ProcessExecutor

        return ProcessExecutor
