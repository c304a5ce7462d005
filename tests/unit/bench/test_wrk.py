from __future__ import annotations

import pytest


@pytest.fixture
def wrk(bench_module):
    return bench_module("wrk")


def test_a_load_without_a_failed_request_has_the_rate_and_the_percentiles(wrk, capsys):
    assert wrk.figures_of("RESULT 5000 2000000 0 0 900 7400\n") == {"per_s": 2500, "p50": 0.9, "p99": 7.4}
    assert capsys.readouterr().err == ""


def test_failed_requests_are_counted_and_shown_and_are_no_part_of_the_rate(wrk, capsys):
    figures = wrk.figures_of("RESULT 4000 1000000 30 10 900 7400\n")
    assert figures["per_s"] == pytest.approx(3970)
    assert figures[wrk.FAILED] == pytest.approx(100 * 40 / 4010)
    assert "40 of 4010 requests failed (0.998 %): 30 with a status" in capsys.readouterr().err


@pytest.mark.parametrize("printed", ["", "RESULT 30 1000000 30 0 1 1", "RESULT 0 1000000 0 7 1 1"])
def test_a_load_of_which_nothing_succeeded_ends_the_run(wrk, printed):
    with pytest.raises(SystemExit):
        wrk.figures_of(printed)


def test_good_answers_are_those_without_a_status_of_400_or_more(wrk):
    assert wrk.good_answers("RESULT 4000 1000000 30 10 900 7400\n") == 3970
