"""The ends of leader epochs where no broker answers; for answers see integration/job/test_truncation.py."""

from __future__ import annotations

import pytest

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.ports import Clock
from keylane_local.process.ports import HOST, Ports
from keylane_spark.log.leader_epochs import epoch_ends


def test_a_cluster_that_is_gone_is_an_error_after_which_the_job_starts_over():
    nobody = Connection(f"{HOST}:{Ports().any()}")
    with pytest.raises(LogUnavailable, match="the ends of leader epochs are not known: "):
        epoch_ends(nobody, {("t", 0): 1}, Clock(), 0.2)


def test_no_epochs_ask_nobody():
    assert epoch_ends(Connection("localhost:1"), {}, Clock()) == {}
