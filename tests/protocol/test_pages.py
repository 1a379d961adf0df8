from __future__ import annotations

import pytest

from edge.contract.wire import dumps
from edge.protocol.pages import fitting, leading, newest

ROWS = [{"at": 2, "name": "b"}, {"at": 3, "name": "a"}, {"at": 1, "name": "c"}]
SIZE = len(dumps(ROWS[0])) + 1


def at(row: dict[str, object]) -> int:
    return int(str(row["at"]))


def test_everything_that_fits_is_there_in_the_order_given() -> None:
    assert newest(ROWS, at, 3 * SIZE) == (ROWS, False)
    assert newest([], at, 0) == ([], False)


def test_what_is_oldest_is_left_out_first() -> None:
    assert newest(ROWS, at, 3 * SIZE - 1) == (ROWS[:2], True)
    assert newest(ROWS, at, SIZE) == (ROWS[1:2], True)
    assert newest(ROWS, at, SIZE - 1) == ([], True)


@pytest.mark.parametrize(
    ("sizes", "rows", "octets", "fits"),
    [
        ([], 5, 100, 0),
        ([10, 10, 10], 5, 30, 3),
        ([10, 10, 10], 5, 29, 2),
        ([10, 10, 10], 2, 100, 2),
        ([50, 10], 5, 20, 1),
        ([10], 0, 100, 0),
        ([10, 10], -1, 100, 0),
    ],
)
def test_a_page_has_as_many_rows_and_bytes_as_it_may_and_one_row_whatever_it_weighs(
    sizes: list[int], rows: int, octets: int, fits: int
) -> None:
    assert fitting(sizes, rows, octets) == fits
    numbered = list(enumerate(sizes, 7))
    assert leading(numbered, rows, octets) == [7, 8, 9][:fits]
