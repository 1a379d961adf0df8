"""`aun_core_agent` that hears of groups.

usage: aun_core_groups.py AUN_PATH AID
"""

import asyncio

import aun_core_agent

aun_core_agent.NAMES += (
    "group.changed",
    "group.message_created",
    "group.message_recalled",
    "group.message_undecryptable",
    "e2ee.orchestration_error",
)


if __name__ == "__main__":
    asyncio.run(aun_core_agent.main(aun_core_agent.Agent))
