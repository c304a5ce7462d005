"""Lines of Kafka's client: the same one is shown once a minute."""

from __future__ import annotations

import logging

from keylane.adapters.kafka.clients import RareRepeats

LINE = "FAIL [rdkafka#consumer-%d] [thrd:a:9092/1]: a:9092/1: refused (after %dms in state CONNECT%s)"


def a_line(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("keylane.kafka.client", logging.ERROR, "", 0, text, arguments, None)


def test_a_broker_that_is_away_is_said_once_a_minute_whichever_client_says_it():
    now_s = [0.0]
    seldom = RareRepeats(lambda: now_s[0])
    assert seldom.filter(a_line(LINE, 1, 0, ""))
    assert not seldom.filter(a_line(LINE, 2, 7, ", 30 identical error(s) suppressed"))
    assert seldom.filter(a_line(LINE.replace("a:9092", "b:9092"), 1, 0, "")), "another broker is another line"
    now_s[0] = 59.9
    assert not seldom.filter(a_line(LINE, 1, 0, ""))
    now_s[0] = 60.0
    assert seldom.filter(a_line(LINE, 1, 0, ""))


def test_what_is_remembered_of_lines_is_bounded():
    seldom = RareRepeats(lambda: 0.0)
    assert all(seldom.filter(a_line(f"line {number}")) for number in range(3_000))
