"""The `Ledger` on DynamoDB, put together from its parts."""

from __future__ import annotations

from shared.aws.ledger_allowance import Allowances
from shared.aws.ledger_matches import Matches
from shared.aws.ledger_moves import Moves
from shared.aws.ledger_rates import Rates
from shared.aws.ledger_rows import Rows
from shared.aws.ledger_runs import Runs
from shared.aws.ledger_stats import Stats


class DynamoLedger(Rows, Moves, Matches, Runs, Allowances, Rates, Stats):
    """One table, one object: `shared.ports.Ledger`."""
