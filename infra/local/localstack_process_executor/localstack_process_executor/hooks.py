"""What LocalStack runs of this package when it starts, by its entry points."""

from __future__ import annotations

from localstack.runtime import hooks

from localstack_process_executor import patches


@hooks.on_infra_start()
def apply_patches() -> None:
    """Mend what stands in the way of functions that run for long, before the gateway listens."""
    patches.listen_where_told()
    patches.forget_ended_threads()
