"""docs/use/rights.md: its policy is one, and its tutorial prints what it says."""

from __future__ import annotations

import re

from click.testing import CliRunner
from tests.support.project_files import ROOT

from keylane.config.access import read_policy
from keylane_cli.access import access

PAGE = (ROOT / "docs/use/rights.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_policy_is_one(tmp_path):
    (tmp_path / "access.toml").write_text(block("toml").replace("SHA-256-OF-A-TOKEN", "0" * 64))
    found = read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/access.toml"})
    assert [rule.name for rule in found.rules] == ["own orders", "rules[1]"]
    assert [grant.name for grant in found.grants.values()] == ["billing"]


def test_the_issuer_of_a_user_pool_is_one(tmp_path):
    _, issuer = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    [name] = re.findall(r"^issuer = .*$", issuer, re.MULTILINE)
    (tmp_path / "access.toml").write_text(f'{issuer}[[access.rules]]\n{name}\nread = ["a"]\n')
    assert len(read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/access.toml"}).rules) == 1


def test_the_tutorial_s_tokens_are_those_of_its_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python"), "rights.md", "exec"), {})  # noqa: S102 (as a reader does)
    monkeypatch.setenv("KEYLANE_ACCESS", "file:access.json")
    shown = re.search(r"< ann\.token\n(.*?)\n\$", block("console"), re.DOTALL)
    path = "/topics/orders/keys/ann%2F1"
    for name in ("ann", "bob"):
        token = (tmp_path / f"{name}.token").read_text()
        printed = CliRunner().invoke(access, ["explain", "-", "GET", path], input=token)
        assert printed.exit_code == 0
        assert (printed.output.strip() == shown[1]) == (name == "ann")  # type: ignore[index]
        assert ("is none of them" in printed.output) == (name == "bob")
