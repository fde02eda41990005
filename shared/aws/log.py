"""The `Log` as one JSON line per decision, through Powertools' logger."""

from __future__ import annotations

from aws_lambda_powertools import Logger

from shared.core.log_fields import check_fields


class JsonLog:
    """`event` is the stable name to search for. Callers pass counts, classes and reason codes only (I12).

    The service is POWERTOOLS_SERVICE_NAME, the function's, unless given.

    Never the Lambda event: no `inject_lambda_context(log_event=...)`, it prints bearer tokens and payloads (TRAPS 34).
    """

    def __init__(self, service: str | None = None) -> None:
        self._service = service
        self._made: Logger | None = None

    def event(self, name: str, **fields: int | float | str | bool | None) -> None:
        check_fields(fields)
        self._logger.info(name, extra={"event": name, **fields})

    @property
    def _logger(self) -> Logger:
        if self._made is None:
            # The code line would be this file's for every event.
            self._made = Logger(service=self._service, location=None)
        return self._made
