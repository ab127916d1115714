"""Where a number comes from."""

import datetime
from typing import Literal

from pydantic import Field

from advisor.domain.record import Record

EvidenceKind = Literal["measured", "imported", "published", "estimated"]


class Evidence(Record):
    """Origin of a set of numbers: what the page shows beside each of them."""

    kind: EvidenceKind = Field(
        description="measured by this tool, imported from another tool, published by someone, or estimated"
    )
    source: str = Field(min_length=1, description="command, file and commit, or page")
    date: datetime.date | None = Field(
        description="date of the measurement or publication; null when the source does not say"
    )
    license: str | None = Field(default=None, description="license of the source, where one applies")
    note: str | None = Field(default=None, description="what a reader must know to use the numbers")
