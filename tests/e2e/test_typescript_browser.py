"""The TypeScript client's module in a browser: Chromium sends its requests, and reads its streams."""

from __future__ import annotations

import uuid

import pytest
from tests.support.browser import Tab, chromium
from tests.support.project_files import ROOT

from keylane_build.release.contents import read_members
from keylane_build.release.npm_package import build_package

pytestmark = pytest.mark.long

PROGRAM = """
async (key) => {
  const { Client, KeyAbsent } = await import("/client.js");
  const topic = new Client(location.origin).session().topic("flights");
  const error = await topic.read(key).catch((each) => each);
  const seen = [error instanceof KeyAbsent];
  await topic.put(key, { dest: "SFO" }, { headers: {} });
  const record = await topic.read(key);
  seen.push(record.value.dest, (await topic.get(key, { known: record })) !== undefined);
  seen.push((await topic.getMany([key, new Uint8Array([255])])).size);
  for await (const change of topic.watch(key)) {
    seen.push(change.absent ? "gone" : change.value.dest);
    if (change.absent) break;
    if (change.value.dest === "SFO") await topic.put(key, { dest: "LAX" });
    else await topic.delete(key);
  }
  return seen;
}
"""


@pytest.fixture(scope="module")
def module_of_package(tmp_path_factory) -> str:
    package = build_package(ROOT, tmp_path_factory.mktemp("package"))
    return read_members(package)["package/dist/index.js"].decode()


def test_a_page_reads_writes_and_follows_a_key(applied_stack, module_of_package):
    url = applied_stack.http_url
    with chromium() as browser:
        tab = Tab(browser)
        # A request that is refused is one, also that which the program is about.
        tab.expected = "Failed to load resource"
        tab.page.route(
            f"{url}/page", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>")
        )
        script = {"content_type": "text/javascript", "body": module_of_package}
        tab.page.route(f"{url}/client.js", lambda route: route.fulfill(**script))
        tab.page.goto(f"{url}/page")
        seen = tab.page.evaluate(PROGRAM, f"browser-{uuid.uuid4().hex}")
        tab.close()
    assert seen == [True, "SFO", True, 2, "SFO", "LAX", "gone"]
