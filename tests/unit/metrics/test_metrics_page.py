"""docs/operate/metrics.md is the table of the code: each metric with its unit, labels and names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keylane.metrics.catalogue import FORMER_NAMES, FUNCTIONS, JOB, METRICS

PAGE = (Path(__file__).parents[3] / "docs" / "operate" / "metrics.md").read_text()
ROWS = {
    cells[0].strip("*`"): cells
    for line in PAGE.partition("## Job metrics")[0].splitlines()
    if line.startswith("| ") and "`" in line
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


@pytest.mark.parametrize("name", METRICS)
def test_the_page_describes_each_metric_as_it_is(name):
    metric = METRICS[name]
    _, unit, labels, samples, *meaning = ROWS[name]
    assert (unit, samples.strip("`")) == (metric.unit, metric.samples)
    assert tuple(re.findall(r"`(\w+)`", labels)) == metric.labels
    assert all(meaning)


def test_the_page_has_no_metric_that_does_not_exist():
    assert ROWS.keys() == METRICS.keys()


def test_client_metrics_in_bold_are_those_that_cloudwatch_charges_for():
    bold = set(re.findall(r"^\| \*\*`(\w+)`\*\* ", PAGE, re.MULTILINE))
    assert bold == {name for name, metric in METRICS.items() if metric.is_billed} - FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("kind", "heading"), [("topic", "Of topics:"), ("view", "Of views:"), ("index", "Of indexes of fields:")]
)
def test_the_page_has_the_jobs_metrics_as_they_are(kind, heading):
    table = PAGE.partition(f"\n{heading}\n\n")[2].partition("\n\n")[0]
    rows = [[cell.strip("`* ") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    found = {name: (unit, samples) for name, unit, samples, _ in rows}
    assert found == {name: (metric.unit, metric.samples) for name, metric in JOB[kind].items()}


def test_the_page_has_the_former_names():
    table = PAGE.partition("\n## Former names\n")[2].partition("\n## ")[0]
    by_family = {metric.openmetrics: metric.samples for metric in METRICS.values()} | {
        metric.openmetrics: metric.samples for kind in JOB.values() for metric in kind.values()
    }
    found = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", table, re.MULTILINE))
    assert found == {former: by_family[name] for name, former in FORMER_NAMES.items()}
