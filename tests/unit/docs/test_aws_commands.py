"""The `aws` commands of documents and workflows: operations, options and answers that exist; outputs too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support.cloudformation import ROOT, template
from tests.unit.docs import aws_commands, console
from tests.unit.docs.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = [
    ROOT / "README.md",
    *sorted(each for each in (ROOT / "docs").rglob("*.md") if "aws " in each.read_text(encoding="utf-8")),
]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OPERATE = sorted((ROOT / "docs" / "operate").glob("*.md"))
OUTPUTS = template()["Outputs"].keys()
ASKED_FOR = re.compile(r"\boutputs? `(\w+)`|\bthe output (\w+)|OutputKey=='(\w+)'")


def commands_of(document: Document) -> Iterator[tuple[int, list[str]]]:
    for command in console.commands(document):
        if command.words[0] == "aws":
            yield command.line, list(command.words)
    for number, line in document.prose():
        yield from ((number, words) for words in aws_commands.spans(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_aws_command_of_a_page_is_one_that_the_cli_takes(page):
    document = Document(page.read_text(encoding="utf-8"))
    found = [
        f"{page.name}:{line}: {fault}"
        for line, words in commands_of(document)
        for fault in aws_commands.faults(words)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_aws_command_of_a_workflow_is_one_that_the_cli_takes(workflow):
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values()
    scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    found = [words for script in scripts for words in aws_commands.script_commands(script)]
    assert [fault for words in found for fault in aws_commands.faults(words)] == []
    assert workflow.stem != "smoke" or len(found) > 5


def test_the_deployment_page_has_commands_that_were_checked():
    document = Document((ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8"))
    in_blocks = [each for each in console.commands(document) if each.words[0] == "aws"]
    assert len(in_blocks) > 10
    assert len(list(commands_of(document))) > len(in_blocks) + 10


@pytest.mark.parametrize("page", [*OPERATE, *WORKFLOWS], ids=lambda page: page.name)
def test_every_output_that_is_named_is_one_of_the_template(page):
    asked = {name for each in ASKED_FOR.findall(page.read_text(encoding="utf-8")) for name in each if name}
    assert asked <= OUTPUTS


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("aws elasticache", "a service and an operation"),
        ("aws elasticcache describe-users", "no service elasticcache"),
        ("aws elasticache list-users", "no operation list-users"),
        ("aws elasticache describe-users --name a", "no --name"),
        ("aws apigateway get-api-key --include-value", "requires --api-key"),
        ("aws apigateway create-api-key --enable", "no --enable"),
        ("aws cloudformation describe-stacks --query 'Stacks[0].Output'", "no Output"),
        ("aws cloudwatch describe-alarms --query 'MetricAlarms[].[Name]'", "no Name"),
        ("aws kafka list-clusters --query 'ClusterInfoList[?Nam].ClusterArn'", "no Nam"),
        ("aws kafka list-clusters --query 'ClusterInfoList['", "--query"),
        ("aws cloudformation wait stack-gone", "cannot wait for"),
        ("aws cloudformation deploy --template infra/key.yaml", "--template is not known"),
    ],
)
def test_a_command_that_the_cli_refuses_is_found(command, fault):
    [words] = aws_commands.spans(f"`{command}`")
    assert any(fault in each for each in aws_commands.faults(words))


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("url=$(aws a b --query c)", ["aws", "a", "b", "--query", "c"]),
        ('x "$(aws a b)"', ["aws", "a", "b"]),
        ("aws a b \\\n  --c | docker login", ["aws", "a", "b", "--c"]),
        ("echo aws a b", None),
    ],
)
def test_the_commands_of_a_script_are_found(script, found):
    assert list(aws_commands.script_commands(script)) == ([found] if found else [])
