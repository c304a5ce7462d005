from __future__ import annotations

import pytest


@pytest.fixture
def verdict(bench_module):
    return bench_module("verdict")


@pytest.fixture
def seen(verdict):
    """Make a read: due, end, number of the record; of one key, answered with 200."""

    def make(due_s, end_s, number=0, key=0, status=200, age_ms=500):
        return verdict.TimedRead(due_s, end_s, key, status, age_ms, number)

    return make


def test_a_read_goes_back_when_one_that_had_ended_before_saw_a_newer_record(verdict, seen):
    assert verdict.went_back([seen(0, 1, 5), seen(2, 3, 4)]) == 1
    assert verdict.went_back([seen(2, 3, 4), seen(0, 1, 5)]) == 1
    assert verdict.went_back([seen(0, 1, 5), seen(2, 3, 5), seen(4, 5, 6)]) == 0


def test_reads_under_way_at_once_and_of_other_keys_don_t_go_back(verdict, seen):
    assert verdict.went_back([seen(0, 3, 5), seen(1, 2, 4)]) == 0
    assert verdict.went_back([seen(0, 1, 5), seen(2, 3, 4, key=1)]) == 0
    assert verdict.went_back([seen(0, 1, 5), seen(2, 3, -1, status=503)]) == 0


def test_the_longest_gap_is_between_good_reads(verdict, seen):
    reads = [seen(0, 1.0), seen(1, 1.5), seen(1, 2.0, status=503), seen(2, 3.0), seen(3, 3.25)]
    assert verdict.longest_gap_s(reads) == 1.5
    assert verdict.longest_gap_s([]) == 0


def test_figures_count_failed_reads_and_time_the_others_from_when_they_were_due(verdict, seen):
    reads = [seen(0, 0.5), seen(1, 1.25), seen(2, 9, status=503), seen(3, 9, status=-1)]
    assert verdict.figures(reads) == {"reads": 4, "failed": 2, "p50": 250, "p99": 500, "max": 500}
    assert verdict.statuses(reads) == {"503": 1, "-1": 1}
    assert verdict.figures(reads[2:]) == {"reads": 2, "failed": 2}
