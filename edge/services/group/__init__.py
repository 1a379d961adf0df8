"""`group.*`: rooms of several AIDs; every message to everybody, numbered per group (spec aun-services §1.3)."""

from edge.services.group.service import GroupService

__all__ = ["GroupService"]
