"""aun-edge: an embedded edge node that makes the things in a house reachable by agents.

Three journeys explain the house; each can be followed in five files.

A reading: `edge/transports/mqtt/builtin.py` (bytes in, acks out) → `edge/protocol/mqtt/broker.py` (rights, routes, live
forward) → `edge/devices/intake.py` (topic → value) → `edge/store/readings.py` (number, row) → `edge/store/writer.py`
(commit; then acks and events).

A task: `edge/transports/http/a2a.py` (the request and its View) → `edge/dispatch/dispatcher.py` (may they, is it well
formed, was it done before) → `edge/services/task/service.py` (one unit) → `edge/protocol/engine.py` (state and effects)
→ `edge/devices/gate.py` (command out, report back).

A message: `edge/transports/http/aun.py` (a socket) → `edge/session/conversation.py` (who; one answer each) →
`edge/dispatch/dispatcher.py` → `edge/services/message/post.py` (inbox, event) → `edge/store/messages.py`.

`edge/node/house.py` puts the parts together; `edge/contract/` has the words they share.
"""

__version__ = "0.1.0"
