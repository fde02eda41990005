"""`python -m ops`: the operator's and the engineer's command line."""

from __future__ import annotations

from ops.cli import main

main(prog_name="python -m ops")
