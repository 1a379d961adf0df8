"""Data types, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.mqtt import fields
from edge.protocol.mqtt.fields import Fault


@given(st.integers(0, fields.MAX_VARINT))
def test_a_variable_byte_integer_survives(value: int) -> None:
    """MQTT 5 §1.5.5."""
    raw = fields.put_varint(value)
    assert fields.varint(raw + b"\x01", 0, len(raw) + 1) == (value, len(raw))
    with pytest.raises(Fault):
        fields.varint(raw, 0, len(raw) - 1)


@pytest.mark.parametrize("value", [-1, fields.MAX_VARINT + 1])
def test_what_is_no_variable_byte_integer_is_not_written(value: int) -> None:
    with pytest.raises(ValueError, match=r"integer|must be"):
        fields.put_varint(value)


@pytest.mark.parametrize("raw", ["ffffffff01", "8000", "80", ""])
def test_what_is_no_variable_byte_integer_is_malformed(raw: str) -> None:
    data = bytes.fromhex(raw)
    with pytest.raises(Fault):
        fields.varint(data, 0, len(data))


def test_a_string_has_65535_bytes_at_most() -> None:
    assert len(fields.put_text("x" * 65_535)) == 65_537
    with pytest.raises(ValueError, match="65535"):
        fields.put_text("x" * 65_536)
