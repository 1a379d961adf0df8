"""`auth.*` and `agent.*`: names, keys, certificates, logins, tokens, sessions."""

from __future__ import annotations

from edge.services.auth.agents import AgentService
from edge.services.auth.service import AuthService

__all__ = ["AgentService", "AuthService"]
