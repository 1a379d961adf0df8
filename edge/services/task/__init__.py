"""`task.*` and `skill.call`: one engine, every protocol a View over it (design D7; aun-services §1.8, rules K)."""

from edge.services.task.service import TaskService

__all__ = ["TaskService"]
