"""What a version says of the table that is not about files: protocol, metadata, txns, domains.

PROTOCOL.md, "Action Reconciliation": the newest protocol and metaData, the newest txn of each
application, the newest domainMetadata of each domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_delta.errors.table import CorruptLogError
from pyspark_delta.kernel.protocol.actions import (
    Action,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)


@dataclass(frozen=True, slots=True)
class TableState:
    """The state so far.  `domains` keeps the removed ones, so that they can hide older ones."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> TableState:
        """The state once newer actions have been heard, oldest first."""
        protocol, metadata = self.protocol, self.metadata
        transactions: dict[str, SetTransaction] = {}
        domains: dict[str, DomainMetadata] = {}
        for action in actions:
            match action:
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
                case SetTransaction():
                    transactions[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
                case _:
                    pass
        return TableState(
            protocol,
            metadata,
            {**self.transactions, **transactions} if transactions else self.transactions,
            {**self.domains, **domains} if domains else self.domains,
        )

    def checked(self, version: int) -> tuple[Protocol, Metadata]:
        """Protocol and metadata, which every table has; CorruptLogError when one is not there."""
        for name, action in (("protocol", self.protocol), ("metadata", self.metadata)):
            if action is None:
                raise CorruptLogError("DELTA_STATE_RECOVER_ERROR", operation=name, version=version)
        assert self.protocol is not None
        assert self.metadata is not None
        return self.protocol, self.metadata

    @property
    def live_domains(self) -> dict[str, DomainMetadata]:
        """The domains that were not removed."""
        return {name: action for name, action in self.domains.items() if not action.removed}
