"""Hooks that are done when their commit returns, so that tests see what they wrote."""

from __future__ import annotations

from pyspark_delta.kernel.txn.hooks import CommitEvent, Hook, HookRunner, default_hooks


class InlineRunner(HookRunner):
    """Runs hooks at once, in the caller's thread."""

    def __init__(self, hooks: tuple[Hook, ...] | None = None) -> None:
        self._hooks = default_hooks() if hooks is None else hooks

    def submit(self, event: CommitEvent) -> None:
        for hook in self._hooks:
            hook.attempt(event)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        return True

    def wait_for(self, event: CommitEvent, timeout_seconds: float) -> bool:
        return True
