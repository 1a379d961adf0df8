"""What the task service lets others ask for, by name."""

from __future__ import annotations

from edge.contract.errors import OutputTooLarge, RateLimited, TooLarge
from edge.contract.limit import declare

ARTIFACTS = declare(
    "task.artifacts", 262_144, "bytes", "of all artifacts of one task, as JSON; above: storage", OutputTooLarge
)
INPUT = declare("task.input", 131_072, "bytes", "of one message to a task, as JSON", TooLarge)
LIVE = declare("task.live", 256, "tasks", "of one principal that are not over", RateLimited)
MESSAGES = declare("task.messages", 256, "messages", "said in one task", RateLimited)
REFERENCES = declare("task.subscriptions", 256, "tasks", "named in one task.subscribe", TooLarge)
