from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import edge.node.house  # noqa: F401  declares every limit
from edge.config import LOCAL_FILE, Config, ConfigError, edit_local, load_config
from edge.contract import limit


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    burst = limit.Limit("test.reader_burst", 5, "frames", "Only here to be overridden.")
    monkeypatch.setitem(limit.REGISTRY, burst.name, burst)
    return Place(tmp_path)


class Place:
    """A machine of its own: an /etc, a state directory, an environment."""

    def __init__(self, root: Path) -> None:
        self.etc = root / "etc" / "aun-edge.toml"
        self.state = root / "state"
        self.root = root

    def write(self, path: str, text: str) -> Path:
        made = self.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        return made

    def load(
        self,
        *,
        config_file: Path | None = None,
        profile: str = "",
        sets: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Config:
        return load_config(
            state_dir=self.state,
            config_file=config_file,
            profile=profile,
            sets=sets,
            environ=environ or {},
            system_file=self.etc,
        )

    def refusals(
        self, *, config_file: Path | None = None, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> list[str]:
        with pytest.raises(ConfigError) as refused:
            self.load(config_file=config_file, sets=sets, environ=environ)
        return str(refused.value).replace(str(self.root) + "/", "").splitlines()


def test_without_any_file_the_node_listens_on_loopback_only(place: Place) -> None:
    opened = [one for one in place.load().listeners() if not one.owned]
    assert [(one.name, one.host, one.port) for one in opened] == [
        ("http", "127.0.0.1", 9010),
        ("mqtt", "127.0.0.1", 1883),
    ]


def test_each_later_place_wins(place: Place) -> None:
    profile = place.write("p.toml", "[log]\nrate = 1\n")
    assert place.load(profile=str(profile)).log.rate == 1
    place.write("etc/aun-edge.toml", "[log]\nrate = 2\n")
    assert place.load(profile=str(profile)).log.rate == 2
    place.write("etc/aun-edge.toml.d/10-a.toml", "[log]\nrate = 3\n")
    place.write("etc/aun-edge.toml.d/20-b.toml", "[log]\nrate = 4\n")
    assert place.load(profile=str(profile)).log.rate == 4
    place.write("state/config.d/50-x.toml", "[log]\nrate = 5\n")
    assert place.load(profile=str(profile)).log.rate == 5
    place.write("state/config.d/90-local.toml", "log.rate = 6\n")
    assert place.load(profile=str(profile)).log.rate == 6
    environ = {"AUN_EDGE_LOG_RATE": "7"}
    assert place.load(profile=str(profile), environ=environ).log.rate == 7
    assert place.load(profile=str(profile), environ=environ, sets=["log.rate=8"]).log.rate == 8


def test_a_named_file_stands_in_for_the_one_of_the_system(place: Place) -> None:
    place.write("etc/aun-edge.toml", "[log]\nrate = 2\n")
    mine = place.write("mine.toml", "[node]\nname = 'mine'\n")
    place.write("mine.toml.d/a.toml", "[node]\nprovider = 'me'\n")
    config = place.load(config_file=mine)
    assert (config.node.name, config.node.provider, config.log.rate) == ("mine", "me", 60)


def test_where_a_value_comes_from_is_known(place: Place) -> None:
    path = place.write("etc/aun-edge.toml", "# mine\n[mqtt]\nlisten = '127.0.0.1:2883'\n")
    config = place.load(environ={"AUN_EDGE_NODE_NAME": "box"}, sets=["log.level=debug"])
    assert [str(config.origin(key)) for key in ("mqtt.listen", "node.name", "log.level", "http.listen")] == [
        f"{path}:3",
        "AUN_EDGE_NODE_NAME",
        "--set log.level",
        "default",
    ]


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[mqtt]\n\nlisen = '127.0.0.1:1'\n", ":3: mqtt.lisen: no such setting; did you mean mqtt.listen?"),
        ("[mqtt]\nzzz = 1\n", ":2: mqtt.zzz: no such setting; allowed in [mqtt]: listen, tls_listen, alias_listen"),
        ("[log]\nlevel = 'loud'\n", ":2: log.level: 'loud' is refused; allowed: debug, info, warning, error"),
        ("log.rate = -1\n", ":1: log.rate: -1 is refused; allowed: a whole number from 0 to 100000"),
        ("log.rate = 100001\n", ":1: log.rate: 100001 is refused; allowed: a whole number from 0 to 100000"),
        ("log.rate = '5'\n", ":1: log.rate: '5' is refused; allowed: a whole number from 0 to 100000"),
        ("log.rate = true\n", ":1: log.rate: True is refused; allowed: a whole number from 0 to 100000"),
        ("[http]\ninsecure_local = 1\n", ":2: http.insecure_local: 1 is refused; allowed: true or false"),
        ("[node]\npublic_url = 'x'\n", ":2: node.public_url: 'x' is refused; allowed: a list of: `http(s)://"),
        ('[log.levels]\n"edge.store" = "all"\n', ":2: log.levels.edge.store: 'all' is refused; allowed: debug, info"),
        ("[log]\nlevels = {a = 'all'}\n", ":2: log.levels.a: 'all' is refused"),
        ("[http]\nlisten = '9010'\n", ":2: http.listen: '9010' is refused; allowed: `host:port`"),
        ("[http]\nlisten = '127.0.0.1:65536'\n", ":2: http.listen: port 65536 is refused; allowed: 0 to 65535"),
        ("[http]\nlisten = '0.0.0.0:80'\n", ":2: http.listen: 0.0.0.0 is not of this machine alone"),
        ("[mqtt]\nplain_lan = ['8.8.8.0/24']\n", ":2: mqtt.plain_lan: '8.8.8.0/24' is not a private network; allowed"),
        (
            "[mqtt]\nplain_lan = ['eth0']\n[http]\ninsecure_local = true",
            ":2: mqtt.plain_lan: http.insecure_local is on",
        ),
        ("[mqtt]\nws_listen = '0.0.0.0:80'\n", ":2: mqtt.ws_listen: 0.0.0.0 is not of this machine alone"),
        ("[mqtt]\nws_origins = ['https://a.lan/x']\n", ":2: mqtt.ws_origins: 'https://a.lan/x' is refused; allowed"),
        ("[mqtt]\nlisten = '[::]:1883'\n", ":2: mqtt.listen: :: is not of this machine alone"),
        ("[limits]\n'test.reader_burst' = 0\n", ":2: limits.test.reader_burst: 0 is refused; allowed: a whole number"),
        ("[limits.test]\nreader_bust = 9\n", ":2: limits.test.reader_bust: no such setting; did you mean"),
        ("[limits]\nnope = 1\n", ":2: limits.nope: no such setting; allowed in [limits]: "),
        ("[mqtt]\nlanguage = 1\n", ":2: mqtt.language: no such setting; allowed in [mqtt]: listen"),
        ("[mqtt.external]\nhots = 'x'\n", ":2: mqtt.external.hots: no such setting; did you mean mqtt.external.host?"),
        ("[node]\npublic_url = ['https://a.lan', 'x']\n", ":2: node.public_url: 'x' is refused; allowed: `http(s)://"),
        ("[store]\nwear_window_s = nan\n", ":2: store.wear_window_s: nan is refused; allowed: a number from 0 to 60"),
        ("[wifi]\nname = 'x'\n", ":2: wifi.name: no such setting; allowed sections: node, http, mqtt"),
        ("[tls]\ncert = '/x.pem'\n", ":2: tls.cert: tls.key is missing"),
        ("[log\n", ":1: not TOML"),
        ("[log]\nrate = 1\nrate = 2\n", ":3: not TOML"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_its_line_and_what_is_allowed(
    place: Place, text: str, refusal: str
) -> None:
    place.write("etc/aun-edge.toml", text)
    (line,) = place.refusals()
    assert line.startswith("etc/aun-edge.toml" + refusal)


def test_a_limit_that_could_not_be_kept_to_is_refused(place: Place) -> None:
    (line,) = place.refusals(sets=["limits.mqtt.packet_octets=128"])
    assert "128 is refused; allowed: a whole number from 129 to " in line
    within = ["limits.mqtt.connect_octets=129", "limits.mqtt.subscribe_octets=129"]
    assert place.load(sets=["limits.mqtt.packet_octets=129", *within]).value("limits.mqtt.packet_octets") == 129


def test_a_limit_stays_within_what_it_travels_in(place: Place) -> None:
    inner = limit.Limit("test.reader_inner", 5, "bytes", "Only here to be overridden.", within="test.reader_burst")
    limit.REGISTRY[inner.name] = inner
    try:
        (line,) = place.refusals(sets=["limits.test.reader_inner=6"])
        assert line.endswith("6 is refused; allowed: at most limits.test.reader_burst (5)")
        both = ["limits.test.reader_inner=6", "limits.test.reader_burst=6"]
        assert place.load(sets=both).limits_overrides() == {"test.reader_inner": 6, "test.reader_burst": 6}
        assert place.load(sets=["limits.test.reader_burst=4"]).value("limits.test.reader_inner") == 5
    finally:
        del limit.REGISTRY[inner.name]


def test_every_problem_is_told_at_once(place: Place) -> None:
    place.write("etc/aun-edge.toml", "[log]\nlevel = 'loud'\nrate = -1\n")
    told = place.refusals(sets=["log.format=xml", "nonsense"], environ={"AUN_EDGE_LOG_LEVLE": "info"})
    assert [line.split(" ")[0] for line in told] == [
        "etc/aun-edge.toml:2:",
        "etc/aun-edge.toml:3:",
        "AUN_EDGE_LOG_LEVLE:",
        "--set",
        "--set",
    ]


def test_a_file_that_is_named_and_missing_is_refused(place: Place) -> None:
    (line,) = place.refusals(config_file=place.root / "nowhere.toml")
    assert line.startswith("nowhere.toml: cannot be read")


def test_a_file_that_is_not_text_is_refused(place: Place) -> None:
    path = place.write("etc/aun-edge.toml", "")
    path.write_bytes(b"\xff\xfe")
    (line,) = place.refusals()
    assert line.startswith("etc/aun-edge.toml: cannot be read")


def test_an_unknown_profile_is_refused_with_the_known_ones(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"no profile 'hoome'; allowed: .*home"):
        place.load(profile="hoome")


def test_the_home_profile_is_accepted(place: Place) -> None:
    assert place.load(profile="home").origin("readings.keep_days").layer == "profile"


def test_variables_of_others_are_left_alone(place: Place) -> None:
    place.load(environ={"AUN_EDGE_PEERS": "/x", "AUN_EDGE_": "", "HOME": "/root"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("node.public_url=https://a.test, https://b.test", ["https://a.test", "https://b.test"]),
        ('node.public_url=["https://a.test"]', ["https://a.test"]),
        ("node.name=7", "7"),
        ("node.name=", ""),
        ("node.port_aliases=TRUE", True),
        ("store.wear_window_s=2.5", 2.5),
        ("log.levels=a.b=debug, c=error", {"a.b": "debug", "c": "error"}),
        ("limits.test.reader_burst=9", 9),
    ],
)
def test_options_are_read_in_the_type_of_their_setting(place: Place, option: str, value: object) -> None:
    assert place.load(sets=[option]).value(option.partition("=")[0]) == value


def test_limits_that_were_changed_are_handed_down_by_name(place: Place) -> None:
    config = place.load(environ={"AUN_EDGE_LIMITS_TEST_READER_BURST": "6"})
    assert config.limits_overrides() == {"test.reader_burst": 6}
    assert place.load().value("limits.test.reader_burst") == 5


def test_nobody_can_change_a_configuration(place: Place) -> None:
    config = place.load()
    with pytest.raises(AttributeError):
        config.mqtt.listen = "0.0.0.0:1883"  # type: ignore[misc]


def test_a_key_that_does_not_exist_has_no_value(place: Place) -> None:
    for key in ("mqtt.lisen", "wifi.name", "limits.nowhere", "mqtt"):
        with pytest.raises(KeyError):
            place.load().value(key)


def test_only_listeners_that_somebody_asked_for_may_stop_the_start(place: Place) -> None:
    profile = place.write("p.toml", "[http]\nlisten = '127.0.0.1:8080'\n")
    config = place.load(profile=str(profile), sets=["mqtt.listen=127.0.0.1:0", "http.tls_listen=192.0.2.7:443"])
    assert [(one.name, one.port, one.explicit, one.owned) for one in config.listeners()] == [
        ("http", 8080, False, False),
        ("mqtt", 0, True, False),
        ("https", 443, True, False),
        ("mqtts", 8883, False, True),
    ]


def test_a_listener_can_be_off(place: Place) -> None:
    config = place.load(sets=["mqtt.listen=off", "http.tls_listen=off", "mqtt.tls_listen=off"])
    assert [one.name for one in config.listeners()] == ["http"]


def test_one_line_opens_the_alias_ports(place: Place) -> None:
    config = place.load(sets=["node.port_aliases=true", "http.metrics_listen=off"])
    assert [(one.name, one.port, one.tls) for one in config.listeners()][4:] == [
        ("ws", 9011, False),
        ("mqtt_alias", 9012, False),
        ("mqtts_alias", 9013, True),
        ("vfs", 9014, True),
    ]


def test_callers_without_token_are_let_in_on_loopback_only(place: Place) -> None:
    config = place.load(sets=["http.insecure_local=true"])
    assert all(one.loopback for one in config.listeners())
    (line,) = place.refusals(sets=["http.insecure_local=true", "http.tls_listen=0.0.0.0:9443"])
    assert line.startswith("--set http.tls_listen: http.tls_listen: http.insecure_local is on")


def test_a_local_setting_is_written_and_read_again(place: Place) -> None:
    changes = {
        "log.levels.edge.store": "debug",
        "limits.test.reader_burst": "8",
        "node.name": 'the "box" \\ é',
        "node.public_url": "https://a.test,https://b.test",
        "store.wear_window_s": "5",
        "node.port_aliases": "true",
    }
    place.write("state/" + LOCAL_FILE, edit_local(place.state, changes, system_file=place.etc))
    config = place.load()
    assert config.log.levels == {"edge.store": "debug"}
    assert config.limits_overrides() == {"test.reader_burst": 8}
    assert config.node.name == 'the "box" \\ é'
    assert config.node.public_url == ["https://a.test", "https://b.test"]
    assert (config.store.wear_window_s, config.node.port_aliases) == (5.0, True)
    assert config.origin("node.name").layer == "state"


def test_a_local_setting_that_is_dropped_leaves_the_others(place: Place) -> None:
    place.write(
        "state/" + LOCAL_FILE, edit_local(place.state, {"log.rate": "5", "node.name": "x"}, system_file=place.etc)
    )
    place.write("state/" + LOCAL_FILE, edit_local(place.state, {"log.rate": None}, system_file=place.etc))
    assert (place.load().log.rate, place.load().node.name) == (60, "x")


@pytest.mark.parametrize("changes", [{"log.rate": "-1"}, {"log.rte": "1"}, {"log.rte": None}, {"tls.cert": "/x.pem"}])
def test_a_local_setting_that_would_stop_the_start_is_refused(place: Place, changes: dict[str, str | None]) -> None:
    with pytest.raises(ConfigError):
        edit_local(place.state, changes, system_file=place.etc)


def test_settings_that_need_each_other_are_set_together(place: Place) -> None:
    text = edit_local(place.state, {"tls.cert": "/c.pem", "tls.key": "/k.pem"}, system_file=place.etc)
    assert 'tls.cert = "/c.pem"\ntls.key = "/k.pem"' in text


def test_a_section_below_a_section_is_read_from_every_place(place: Place) -> None:
    place.write("etc/aun-edge.toml", '[mqtt]\nengine = "external"\n[mqtt.external]\nhost = "a"\nport = 1\n')
    place.write("state/config.d/90-local.toml", 'mqtt.external.principals."zigbee2mqtt/x" = "z"\n')
    environ = {"AUN_EDGE_MQTT_EXTERNAL_PORT": "2"}
    config = place.load(environ=environ, sets=["mqtt.external.keepalive_s=30", "mqtt.external.filters=a/#,b"])
    asked = config.mqtt_external
    assert (config.mqtt.engine, asked.host, asked.port, asked.keepalive_s) == ("external", "a", 2, 30)
    assert (asked.principals, asked.filters) == ({"zigbee2mqtt/x": "z"}, ["a/#", "b"])
    assert config.value("mqtt.external.port") == 2
    text = edit_local(place.state, {"mqtt.external.tls": "true"}, system_file=place.etc)
    assert text.splitlines()[1:] == [
        'mqtt.external.principals."zigbee2mqtt/x" = "z"',
        "mqtt.external.tls = true",
    ]


def test_a_prefix_with_a_wildcard_is_refused(place: Place) -> None:
    place.write("etc/aun-edge.toml", '[mqtt.external.principals]\n"#" = "rest"\n"a/+" = "b"\n')
    assert place.refusals() == [
        "etc/aun-edge.toml:3: mqtt.external.principals.a/+: 'a/+' is refused; allowed: a topic prefix, or #"
    ]
