"""One Starlette app on our own listeners: AUN, A2A, PKI, agent.md, health."""
