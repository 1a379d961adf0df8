"""Settings: each declared once with type, default, example and sentence; one reader for every place they come from.

Later places win: declared default < profile file < `/etc/aun-edge/aun-edge.toml` and `aun-edge.toml.d/*.toml` (or
`--config FILE` and `FILE.d/*.toml`) < `DIR/config.d/*.toml` < environment `AUN_EDGE_SECTION_KEY` <
`--set section.key=value`. A `Config` is a frozen record that the composition root hands down in pieces; nobody reads
it as a global.
"""

from edge.config.declared import Setting, settings
from edge.config.ports import PORTS, Listener, Port
from edge.config.reader import LOCAL_FILE, Config, ConfigError, Origin, Problem, edit_local, load_config

__all__ = [
    "LOCAL_FILE",
    "PORTS",
    "Config",
    "ConfigError",
    "Listener",
    "Origin",
    "Port",
    "Problem",
    "Setting",
    "edit_local",
    "load_config",
    "settings",
]
