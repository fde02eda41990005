"""The shapes that the app can take, for laws that must hold in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from shared.domain.configuration import parse_settings
from shared.domain.settings import Settings

_EVERYTHING: Final = """
[sluice]
namespace = "SluiceTest"

[upstreams.profile]
api = "bedrock-converse"
model = "eu.example.model-v1:0"
limit_per_s = 2.0

[upstreams.model]
api = "bedrock-converse"
model = "example.model-v1:0"
limit_per_s = 2.0

[classes.documents]
kind = "document_classification"
upstream = "profile"
webhook = true
schedule = "repair"

[classes.replay_summary]
kind = "replay_summary"
upstream = "model"
webhook = true

[classes.session_sweep]
kind = "session_sweep"
options.sessions_table = "game-sessions"

[producers.match_ended]
source = "game.matches"
replay_class = "replay_summary"

[producers.guild_reports]
job_class = "replay_summary"
guilds_table = "game-guilds"

[producers.session_sweep]
job_class = "session_sweep"
"""

_LITTLE: Final = """
[classes.replays]
kind = "screenshot_thumbnails"
"""

EVERYTHING: Final = parse_settings(_EVERYTHING)
LITTLE: Final = parse_settings(_LITTLE)

SHAPES: Final[Mapping[str, Settings]] = {
    "everything": EVERYTHING,
    "everything, under a key of its own": replace(EVERYTHING, customer_managed_key=True),
    "one class and no more": LITTLE,
}
