"""The page of a trial in an account: what is asked, what is not, and what it shows."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml
from tests.support.cloudformation import ROOT
from tests.unit.docs import aws_commands

from keylane_build import smoke_page

PAGE = (ROOT / smoke_page.PAGE).read_text("utf-8")
VALUES = {"ARN": "arn:aws:kafka:eu-central-1:123456789012:cluster/keylane-smoke-1/1", "GROUP": "group"}
QUESTIONS = smoke_page.read_questions(PAGE)
SMOKE = {
    "ok": False,
    "steps": [
        {"name": "health", "did": "kafka, redis ready", "took_ms": 212, "fault": "", "advice": ""},
        {"name": "write", "did": "", "took_ms": 12, "fault": "503 | away", "advice": "wait"},
    ],
}


class Account:
    """AWS as far as the page asks it; it notes what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, command):
        self.asked.append(" ".join(command))
        operation = command[2]
        name = command[command.index("--stack-name") + 1] if "--stack-name" in command else ""
        if operation == "describe-stack-resources":
            found = [{"LogicalResourceId": "Pipeline", "PhysicalResourceId": "nested"}]
            return json.dumps({"StackResources": found})
        if operation == "describe-stacks":
            key, value = ("LogGroup", "jobs") if name == "nested" else ("KafkaClusterArn", VALUES["ARN"])
            return json.dumps({"Stacks": [{"Outputs": [{"OutputKey": key, "OutputValue": value}]}]})
        if operation == "describe-stack-events":
            events = (9, "CREATE_COMPLETE"), (2, "CREATE_IN_PROGRESS"), (5, "CREATE_FAILED", "Api")
            return json.dumps({"StackEvents": [event(*each) for each in events]})
        if operation == "tail":
            return "ready: epoch 1\n  of account 123456789012"
        return ""


def event(second, status, name="Kafka"):
    found = {"LogicalResourceId": name, "ResourceStatus": status, "Timestamp": f"2026-11-25T10:00:0{second}Z"}
    return found | ({"ResourceStatusReason": "no quota"} if "FAILED" in status else {})


def test_commands_that_only_read_are_asked_of_this_stack():
    filled = {each.question: smoke_page.fill(each.command, "keylane-smoke-1", VALUES) for each in QUESTIONS}
    asked = [each for each in filled.values() if each]
    assert len(asked) > 8
    assert filled["Did ElastiCache take the users' rights?"].split()[4] == "keylane-smoke-1-counter"
    assert filled["Do metrics arrive?"].endswith("Keylane/keylane-smoke-1")
    assert filled["May API Gateway write its log?"].split()[3] == "/keylane/keylane-smoke-1/access"
    assert not [each for each in asked if aws_commands.faults(shlex.split(each))]


@pytest.mark.parametrize(
    "question", ["Does a rotation work?", "Does an alarm send a mail?", "Is a tier's quota counted?"]
)
def test_commands_that_change_something_or_lack_a_value_are_not_asked(question):
    [found] = [each for each in QUESTIONS if each.question == question]
    assert smoke_page.fill(found.command, "keylane-smoke-1", VALUES) is None


def test_the_page_shows_steps_failures_times_and_what_aws_said():
    account = Account()
    page = smoke_page.render("keylane-smoke-1", SMOKE, PAGE, account)
    assert "**Something is wrong.**" in page
    assert "| health | 212 | kafka, redis ready |" in page
    assert "| write | 12 | 503 \\| away |" in page, "a bar would end the cell"
    assert "| Api | CREATE_FAILED | no quota |" in page
    assert "| Kafka | 7 |" in page
    assert (
        "| `aws logs tail jobs --since 1h` | `ready: epoch 1` | ready: epoch 1 of account ACCOUNT |" in page
    )
    assert "| Does a rotation work? | `aws secretsmanager rotate-secret --secret-id ARN` |" in page
    assert "123456789012" not in page, "a summary may be public"
    assert not [each for each in account.asked if "rotate" in each or "set-" in each or "delete" in each]


def test_without_a_deployment_the_page_says_so():
    page = smoke_page.render("keylane-smoke-1", None, PAGE, lambda _: "Stack does not exist")
    assert "`keylane smoke` did not run" in page
    assert "| Stack does not exist |" in page


def test_the_workflow_keeps_the_page_whatever_happened():
    workflow = yaml.safe_load((ROOT / ".github/workflows/smoke.yml").read_text("utf-8"))
    steps = workflow["jobs"]["smoke"]["steps"]
    [page] = [each for each in steps if "keylane_build.smoke_page" in each.get("run", "")]
    [kept] = [each for each in steps if "upload-artifact" in each.get("uses", "")]
    [smoke] = [each for each in steps if "keylane smoke" in each.get("run", "")]
    assert page["if"] == kept["if"] == "always()"
    assert "$GITHUB_STEP_SUMMARY" in page["run"]
    assert kept["with"]["path"] in page["run"]
    assert "--json > smoke.json" in smoke["run"]
    assert steps.index(smoke) < steps.index(page) < steps.index(kept)
    delete = next(each for each in steps if each.get("name") == "Delete")
    assert steps.index(kept) < steps.index(delete), "what is deleted says nothing"
