"""What one types: lines for each verb, shown by `--help` and in the reference. A test gives each to the parser."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "aun-edge run",
        "aun-edge run --issuer home.example.org --set mqtt.listen=127.0.0.1:1884",
        "aun-edge run --state-dir ~/second --set http.listen=127.0.0.1:0",
    ),
    "init": ("aun-edge init --issuer home.example.org",),
    "status": ("aun-edge status", "aun-edge status --json"),
    "doctor": ("aun-edge doctor",),
    "selftest": ("aun-edge selftest", "aun-edge selftest --messages 30000 --kills 5 --dir /mnt/card"),
    "methods": ("aun-edge methods --surface aun --scopes",),
    "device add": (
        "aun-edge device add porch",
        "aun-edge device add zigbee --admin",
        "aun-edge device add meter --topics 'energy/#' 'tele/meter-2/#'",
    ),
    "device list": ("aun-edge device list",),
    "device show": ("aun-edge device show porch",),
    "device rotate": ("aun-edge device rotate porch",),
    "device forget": ("aun-edge device forget porch",),
    "agent add": (
        "aun-edge agent add assistant",
        "aun-edge agent add alice --sdk-profile ~/alice --expires 12h",
    ),
    "agent list": ("aun-edge agent list",),
    "agent window": ("aun-edge agent window 5", "aun-edge agent window 0"),
    "agent revoke": ("aun-edge agent revoke assistant",),
    "skill list": ("aun-edge skill list",),
    "skill call": (
        "aun-edge skill call porch.temperature",
        "aun-edge skill call greenhouse.fan on --timeout 60",
        "aun-edge skill call greenhouse.water --params '{\"minutes\": 3}'",
    ),
    "task list": ("aun-edge task list --status submitted",),
    "task show": ("aun-edge task show 01M7WM5N7FGA47W7EDYS302RRY",),
    "task cancel": ("aun-edge task cancel 01M7WM5N7FGA47W7EDYS302RRY",),
    "cap list": ("aun-edge cap list",),
    "cap grant": ("aun-edge cap grant hall.lock assistant",),
    "cap revoke": ("aun-edge cap revoke hall.lock assistant",),
    "queue drops": (
        "aun-edge queue drops --since 1h",
        "aun-edge queue drops --reason queue_full --client porch",
    ),
    "backup create": ("aun-edge backup create", "aun-edge backup create /mnt/card/home.backup"),
    "backup verify": ("aun-edge backup verify home.backup",),
    "backup restore": ("aun-edge backup restore home.backup", "aun-edge backup restore --force home.backup"),
    "config get": ("aun-edge config get log.level",),
    "config set": (
        "aun-edge config set log.level=debug",
        "aun-edge config set mqtt.plain_lan=192.168.1.0/24 tls.names=192.0.2.7",
        "aun-edge config set --unset mqtt.plain_lan",
    ),
    "config list": ("aun-edge config list",),
    "config validate": ("aun-edge config validate --config /etc/aun-edge/aun-edge.toml",),
    "mqtt pub": (
        "aun-edge mqtt pub house/mode night --retain",
        "aun-edge mqtt pub porch/t 21.5 --username porch --password-file porch.password",
        "aun-edge mqtt pub house/picture - < picture.jpg",
    ),
    "mqtt sub": (
        "aun-edge mqtt sub '#'",
        "aun-edge mqtt sub 'porch/#' 'hall/+/state' --count 10 --json --no-retained",
    ),
    "mqtt user add": ("aun-edge mqtt user add bob --topics 'house/#'",),
    "mqtt user list": ("aun-edge mqtt user list",),
    "mqtt user password": ("aun-edge mqtt user password bob --password-file - < password",),
    "mqtt user remove": ("aun-edge mqtt user remove bob",),
}
