"""`message.*`: store-and-forward between AIDs; at least once, in order per inbox (spec aun-services §1.1, rules M)."""

from edge.services.message.service import MessageService

__all__ = ["MessageService"]
