"""The console in Chromium, on the whole stack."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import expect
from tests.e2e.client import Client
from tests.servers.own import eventually
from tests.servers.schema_registry import avro as by_avro
from tests.support.browser import TIMEOUT_MS, ConsoleTab, chromium

from keylane_local.tools import console_dir

expect.set_options(timeout=TIMEOUT_MS)
PHONE = {"width": 360, "height": 720}
TABLET = {"width": 768, "height": 1024}
DESK = {"width": 1280, "height": 900}
TWO_LINES = 90
"""Pixels of a header of two lines: a line of buttons has about 36."""
AXE_OPTIONS = {
    "light": {"resultTypes": ["violations"]},
    "dark": {"resultTypes": ["violations"], "runOnly": ["color-contrast"]},
}
"""In dark all but the colours is as in light."""
NAMES = itertools.count(1)
FOLDER = console_dir()


@pytest.fixture(scope="module")
def browser(applied_stack):
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser, applied_stack):
    opened = ConsoleTab(browser, applied_stack.http_url, viewport=DESK)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def modules(browser, applied_stack):
    """A page from which the console's modules are imported: they are asked what no view shows."""
    opened = ConsoleTab(browser, applied_stack.http_url, viewport=DESK)
    yield opened.open("key")
    opened.close()


@pytest.fixture(scope="module")
def bookings(applied_stack):
    """Two records of `console|1`, one of `console|2` and `console|3`, and a window of the view `puts`."""

    client = Client(applied_stack.http_url)
    client.put("bookings", b"console|1", b'{"to": "Bern", "price": 12.50, "seat": {"car": 2}}')
    for number in (2, 3):
        client.put("bookings", b"console|%d" % number, b'{"to": "Chur"}')
    last = client.put(
        "bookings", b"console|1", b'{"to": "Zug", "price": 12.50, "seat": {"car": 4}, "via": []}'
    )
    wait = {"Keylane_Min_Position": last, "Prefer": "wait=20"}
    eventually(lambda: client.get("bookings", b"console|1", **wait).status == 200, 120)
    client.put("joined", b"console", b'{"amount": 7, "note": "first"}')

    def has_window():
        answer = client.request("GET", "/views/puts/keys/console?partial=true")
        return answer.status == 200 and answer.json["windows"]

    eventually(has_window, 120)
    client.close()


def test_the_console_is_served_with_a_policy_that_allows_no_inline_code(client):
    page = client.request("GET", "/console/")
    assert page.status == 200
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.request("HEAD", "/console/app.js").headers["Content-Type"].startswith("text/javascript")
    moved = client.request("GET", "/console")
    assert (moved.status, moved.headers["Location"]) == (308, "console/")


@pytest.mark.parametrize(
    "path", ["nothing.js", "../server.py", "..%2f..%2fREADME.md", ".hidden", "a/b.js", "%00"]
)
def test_the_console_serves_its_own_files_alone(client, path):
    answer = client.request("GET", f"/console/{path}")
    assert (answer.status, b"no such file" in answer.body) == (404, True)


def cells(page, topic):
    """The cells of a topic's row by the names of their columns."""
    row = page.locator("tbody tr", has=page.get_by_role("link", name=topic, exact=True))
    return lambda column: row.locator(f'[data-label="{column}"]')


def test_topics_show_keys_memory_rate_lag_and_age_and_open_on_their_records(tab, bookings):
    page = tab.open("topics")
    cell = cells(page, "bookings")
    expect(cell("State")).to_have_text("fresh")
    expect(cell("Keys")).to_have_text(re.compile(r"^[\d,]+$"))
    expect(cell("Memory")).to_have_text(re.compile(r"^[\d.]+ (B|KiB)$"))
    expect(cell("Rate")).to_have_text(re.compile(r"^[\d.,K]+/s$"))
    expect(cell("Age")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    expect(cells(page, "flights")("Memory")).to_have_text("\u2013")
    page.get_by_label("Filter").fill("OOKIN")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    expect(page.get_by_text(re.compile(r"^1 of \d+ topics$"))).to_be_visible()
    assert "text=OOKIN" in page.url
    page.get_by_role("link", name="bookings").click()
    expect(page.locator("h1")).to_have_text("Records of bookings")
    expect(page.locator("thead th").first).to_have_text("Position")


def a_summary(**changed):
    known = {"building": False, "incomplete": False, "lag": 0, "age_ms": 300, "strays": {"strays": 0}}
    return {"generation": 1, **known, "log_end": 9, "keys": 5, "memory_bytes": 2048, **changed}


def test_three_hundred_topics_are_a_table_with_problems_first_and_sorted_as_one_likes(tab):
    topics = [
        {"topic": f"t-{n:03}", "partitions": 3, "summary": a_summary(keys=n, lag=n % 7)} for n in range(300)
    ]
    topics[7]["summary"] |= {"age_ms": 60_000}
    topics[9]["summary"] |= {"incomplete": True}
    del topics[2]["summary"]
    pages = {"": {"topics": topics[:200], "next": "t-199"}, "t-199": {"topics": topics[200:]}}

    def answer(route):
        query = parse_qs(urlsplit(route.request.url).query)
        route.fulfill(json=pages[query.get("after", [""])[0]])

    tab.page.route("**/topics?*", answer)
    page = tab.open("topics")
    names = page.locator("tbody td:first-child")
    expect(page.get_by_text("300 topics")).to_be_visible()
    assert [*names.all_inner_texts()[:3], names.last.inner_text()] == ["t-009", "t-007", "t-000", "t-002"]
    expect(cells(page, "t-007")("State")).to_have_text("old")
    expect(cells(page, "t-007")("Lag")).to_have_text("\u2013")
    expect(cells(page, "t-002")("State")).to_have_text("not kept")
    keys = page.get_by_role("columnheader", name="Keys")
    keys.get_by_role("button").click()
    assert [names.first.inner_text(), names.last.inner_text()] == ["t-299", "t-002"]
    expect(keys).to_have_attribute("aria-sort", "descending")
    keys.get_by_role("button").press("Enter")
    assert [names.first.inner_text(), names.last.inner_text()] == ["t-000", "t-002"]
    page.reload()
    expect(keys).to_have_attribute("aria-sort", "ascending")
    page.set_viewport_size(PHONE)
    page.get_by_label("Sort by").select_option("topic")
    expect(names.first).to_have_text("t-000")


def test_the_bar_has_four_places_and_what_belongs_to_a_topic_is_in_its_tabs(tab):
    page = tab.open("records", topic="bookings")
    expect(page.locator(".bar nav a")).to_have_text(["Topics", "Views", "Try it", "API"])
    expect(page.locator(".bar nav a[aria-current]")).to_have_text("Topics")
    tabs = page.get_by_role("navigation", name="Topic bookings").get_by_role("link")
    titles = tabs.all_inner_texts()
    assert titles == ["Records", "Keys", "Key", "Find", "Write", "Schemas", "Lanes", "Groups", "Settings"]
    for number in range(len(titles)):
        tabs.nth(number).click()
        expect(tabs.nth(number)).to_have_attribute("aria-current", "page")
        expect(page.locator("h1")).to_contain_text("bookings")


def test_brokers_are_a_page_with_what_each_is_set_to(tab, applied_stack):
    page = tab.open("topics")
    page.get_by_role("link", name="Brokers").click()
    expect(page.get_by_role("cell", name=applied_stack.kafka_bootstrap)).to_be_visible()
    page.get_by_text("Settings of broker 1").click()
    expect(page.get_by_role("cell", name="log.retention.hours", exact=True)).to_be_visible()


def test_the_lane_map_shows_each_lane_on_its_shard(tab, client):
    lanes = client.request("GET", "/topics/striped").json["lanes"]
    page = tab.open("lanes", topic="striped")
    expect(page.locator(".tile")).to_have_count(len(lanes))
    for lane in lanes:
        shard = page.locator(".shard-card", has=page.get_by_role("heading", name=lane["shard"]))
        expect(shard.locator(f'[data-lane="{lane["partition"]}.{lane["stripe"]}"]')).to_have_count(1)
    page.get_by_text("As a table").click()
    expect(page.locator("tbody tr")).to_have_count(len(lanes))


def fact(page, name):
    return page.locator(".facts div", has=page.locator(f"dt:text-is('{name}')")).locator("dd")


def test_a_topic_with_an_index_shows_how_many_keys_it_has(tab, client, key, bookings):
    page = tab.open("lanes", topic="bookings")

    def is_current():
        return (
            fact(page, "Keys").inner_text()
            == f"{client.request('GET', '/topics/bookings/count').json['count']:,}"
        )

    eventually(is_current, 60)
    before = client.request("GET", "/topics/bookings/count").json["count"]
    position = client.put("bookings", b"counted|" + key, b"1")
    assert client.get_at("bookings", b"counted|" + key, position).status == 200
    assert client.request("GET", "/topics/bookings/count").json["count"] > before
    eventually(is_current, 60)


def test_a_topic_without_an_index_shows_no_count(tab):
    counts = []
    tab.page.on("request", lambda request: counts.append(request.url) if "/count" in request.url else None)
    page = tab.open("lanes", topic="flights")
    expect(fact(page, "Partitions")).to_have_text("9")
    expect(fact(page, "Keys")).to_have_count(0)
    assert counts == []


def test_a_count_that_fails_leaves_the_lanes_there(tab, bookings):
    tab.page.route("**/topics/bookings/count*", lambda route: route.fulfill(status=503, json={"title": "No"}))
    page = tab.open("lanes", topic="bookings")
    expect(fact(page, "Keys")).to_have_text("unknown")
    expect(page.locator(".tile")).to_have_count(9)


def test_a_lane_is_chosen_with_the_keyboard_and_keeps_the_focus(tab):
    page = tab.open("lanes", topic="striped", by="age")
    page.locator('[data-lane="1.2"]').focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Lane 1.2")).to_be_visible()
    before = page.locator(".facts").last.inner_text()
    expect(page.locator(".facts").last).not_to_have_text(before)  # the map was drawn again
    assert page.evaluate("document.activeElement.dataset.lane") == "1.2"


def test_lanes_in_trouble_are_marked(tab, client):
    layout = client.request("GET", "/topics/striped").json
    lanes = {f"{lane['partition']}.{lane['stripe']}": lane for lane in layout["lanes"]}
    lanes["0.0"] |= {"incomplete": True, "lag": 2_000_000}
    lanes["0.1"] |= {"building": True, "has_strays": True}
    lanes["0.1"].pop("age_ms", None)
    tab.page.route("**/topics/striped", lambda route: route.fulfill(json=layout | {"incomplete": True}))
    page = tab.open("lanes", topic="striped")
    expect(page.locator('.tile[data-lane="0.0"]')).to_have_class("tile level-4")
    expect(page.locator('.tile[data-lane="0.0"] .badge')).to_have_text(["incomplete"])
    expect(page.locator('.tile[data-lane="0.1"] .badge')).to_have_text(["building", "strays"])
    page.get_by_label("Colours by").select_option("age")
    page.get_by_role("button", name="Show").click()
    expect(page.locator('.tile[data-lane="0.1"]')).to_have_class("tile level-4")
    expect(page.locator('.tile[data-lane="0.1"]')).to_contain_text("unknown")


def test_a_topic_of_many_lanes_shows_the_worst_of_them(tab, client):
    layout = client.request("GET", "/topics/striped").json
    lanes = [layout["lanes"][0] | {"partition": number, "slot": number * 4} for number in range(4096)]
    lanes[4000] = lanes[4000] | {"lag": 5_000}
    tab.page.route("**/topics/striped", lambda route: route.fulfill(json=layout | {"lanes": lanes}))
    page = tab.open("lanes", topic="striped")
    expect(page.locator(".tile").first).to_have_attribute("data-lane", "4000.0")
    expect(page.locator(".tile")).to_have_count(512)
    expect(page.get_by_text("Tiles of the 512 worst of 4096 lanes")).to_be_visible()


def test_a_key_shows_its_value_and_what_each_record_changed(tab, bookings):
    page = tab.open("key", topic="bookings", key="console|1")
    expect(page.locator("#value pre")).to_contain_text('"price": 12.50')
    newest = page.locator(".timeline > li").first
    expect(newest.locator(".changes li")).to_have_text(
        ['to: "Bern" → "Zug"', "seat.car: 2 → 4", "via added: []"]
    )
    expect(page.locator(".timeline > li").last).to_contain_text("created")


def test_a_change_appears_by_a_stream_without_a_reload(tab, client, key):
    streams = []
    tab.page.on("response", lambda answer: streams.append((answer.url, answer.status)))
    page = tab.open("key", topic="bookings", key=key.decode())
    value = page.locator("#value")
    expect(value).to_contain_text("absent")
    client.put("bookings", key, b'{"n": 1}')
    expect(value).to_contain_text('"n": 1')
    client.put("bookings", key, b'{"n": 2}')
    expect(value).to_contain_text('"n": 2')
    expect(page.locator(".timeline > li")).to_have_count(2)
    expect(page.locator("#said")).to_contain_text("Changed: position")
    client.request("DELETE", f"/topics/bookings/keys/{key.decode()}")
    expect(value).to_contain_text("absent")
    expect(page.locator(".timeline > li").first).to_contain_text("deleted")
    assert [status for url, status in streams if url.endswith("/changes")] == [200]


def test_a_value_is_never_markup(tab, client, key):
    client.put("bookings", key, b"<img src=x onerror=alert(1)><script>alert(2)</script>")
    page = tab.open("key", topic="bookings", key=key.decode())
    expect(page.locator("#value pre")).to_contain_text("<script>alert(2)</script>")
    assert page.locator("#value img, #value script").count() == 0


def test_bytes_that_are_no_text_are_shown_in_hex(tab, client, key):
    client.put("bookings", key, b"\xff\x00Bern")
    page = tab.open("key", topic="bookings", key=key.decode())
    expect(page.locator("#value pre")).to_contain_text("00000000  ff 00 42 65 72 6e")
    expect(page.locator("#value pre")).to_contain_text("..Bern")


def test_a_value_left_in_kafka_says_so(modules):
    script = """async (record) => {
        const json = await import("./json.js");
        return json.valueText(record);
    }"""
    left = {"value": None, "value_format": "left-in-kafka", "value_bytes": 5_000_000}
    assert modules.evaluate(script, left) == "left in Kafka: 5,000,000 bytes"
    assert modules.evaluate(script, {"value": {"a": None}}) == '{"a": null}'


def test_a_range_is_read_page_by_page(tab, bookings):
    page = tab.open("range", topic="bookings", prefix="console|", limit="2")
    expect(page.locator("tbody a")).to_have_text(["console|1", "console|2"])
    expect(page.get_by_text(re.compile(r"^The topic has [\d,]+ keys\.$"))).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.locator("tbody a")).to_have_text(["console|3"])
    expect(page.get_by_text("This is the end of the range.")).to_be_visible()
    page.get_by_role("button", name="First page").click()
    page.get_by_role("link", name="console|1").click()
    expect(page.locator("h1")).to_have_text("Key console|1")


def test_a_view_is_a_chart_and_a_table_of_its_windows(tab, bookings):
    page = tab.open("view", view="puts", key="console", column="total")
    expect(page.get_by_text(re.compile("^(The keys of the view:|The first .* in order)"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^total of 1 windows"))).to_be_visible()
    page.get_by_text("As a table").click()
    expect(page.locator("tbody td").nth(3)).to_have_text("7")


def test_an_error_says_what_to_do(tab):
    page = tab.open("range", topic="flights", prefix="N")
    alert = page.get_by_role("alert")
    expect(alert.get_by_role("heading")).to_have_text("The topic's keys are not kept in order 409")
    expect(alert).to_contain_text("Ranges and counts need index = true for the topic.")
    page.get_by_role("link", name="Records of flights").click()
    expect(page.locator("h1")).to_have_text("Records of flights")
    page.go_back()
    tab.open("range", topic="nowhere")
    expect(alert).to_contain_text("is it in keylane.toml, and is the job running?")


def test_a_service_that_is_away_is_asked_again(tab, bookings):
    tab.page.route("**/topics/bookings/keys/*", lambda route: route.abort())
    page = tab.open("key", topic="bookings", key="console|1")
    expect(page.get_by_role("alert")).to_contain_text("No answer came")
    expect(page.get_by_role("alert")).to_contain_text("Check the address under Connection")
    page.unroute("**/topics/bookings/keys/*")
    expect(page.locator("#value")).to_contain_text('"to": "Zug"')


def test_a_paused_page_asks_for_nothing(tab, client):
    tab.page.clock.install()
    page = tab.open("lanes", topic="striped")
    page.locator(".tile").first.wait_for()
    expect(page.get_by_text("redis ready")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#said")).to_contain_text("Paused")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_request("**/topics/striped"):
        page.get_by_role("button", name="Pause").click()


def test_a_form_sends_what_its_curl_command_sends(tab, client, key):
    page = tab.open("try", operation="put_key")
    page.get_by_label("topic", exact=True).fill("bookings")
    page.get_by_label("key", exact=True).fill(f"{key.decode()} it's / ü")
    page.get_by_label("Body").fill("@/dev/null, it's me")  # to curl's --data-binary an "@" is a file
    page.get_by_role("button", name="Send").click()
    expect(page.locator("section .badge").first).to_have_text("201")
    command = page.get_by_role("region", name="The same with curl").inner_text()
    done = subprocess.run(["/bin/sh", "-c", f"{command} --silent"], capture_output=True, check=True)
    assert b"201 Created" in done.stdout
    position = json.loads(done.stdout.rpartition(b"\r\n\r\n")[2])["position"]
    wait = {"Keylane_Min_Position": position, "Prefer": "wait=20"}
    path = f"{key.decode()} it's / ü".encode()
    assert client.get("bookings", path, **wait).body == b"@/dev/null, it's me"


def test_each_route_has_a_form(tab):
    page = tab.open("try")
    names = page.locator("select[name=operation] option").evaluate_all("all => all.map((each) => each.value)")
    assert len(names) == len(set(names)) > 30
    for name in names:
        page.goto(f"{page.url.partition('#')[0]}#/try?operation={name}")
        expect(page.locator("select[name=operation]")).to_have_value(name)
        expect(page.get_by_role("region", name="The same with curl")).to_contain_text("curl -i")


def test_the_token_is_sent_and_is_in_no_storage_address_or_command(tab):
    page = tab.open("try", operation="get_health")
    page.get_by_role("button", name="Connection").click()
    page.get_by_label("Bearer token").fill("s3cret-token")
    page.get_by_role("button", name="Use", exact=True).click()
    with page.expect_request("**/health") as sent:
        page.get_by_role("button", name="Send").click()
    assert sent.value.headers["authorization"] == "Bearer s3cret-token"
    stores = "{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state"
    kept = page.evaluate(f"JSON.stringify([{stores}])")
    assert "s3cret" not in kept
    assert "s3cret" not in page.get_by_role("region", name="The same with curl").inner_text()
    page.reload()
    with page.expect_request("**/health") as sent:
        page.get_by_role("button", name="Send").click()
    assert "authorization" not in sent.value.headers


STATIC, OTHER = "https://static.example.org", "https://api.example.org"


@pytest.fixture
def functions(lambda_url):
    client = Client(lambda_url)
    yield client
    client.close()


@pytest.mark.parametrize("api", [STATIC, OTHER], ids=["beside the API", "another origin"])
def test_any_static_server_may_host_the_page(tab, client, bookings, functions, api):
    """As behind API Gateway, without streams: Playwright answers a request at once."""
    asked = set()

    def answer(route):
        parts = urlsplit(route.request.url)
        path = parts.path.removeprefix("/prod") + f"?{parts.query}" * bool(parts.query)
        found = (client if path.startswith("/console/") else functions).request("GET", path)
        headers = dict(found.headers) | {
            "Access-Control-Allow-Origin": STATIC,
            "Access-Control-Expose-Headers": "*",
        }
        policy = headers.get("Content-Security-Policy", "")
        headers["Content-Security-Policy"] = policy.replace(
            "connect-src 'self'", f"connect-src 'self' {OTHER}"
        )
        if "/keys" in parts.path:
            asked.add(f"{parts.scheme}://{parts.netloc}")
        route.fulfill(status=found.status, headers=headers, body=found.body)

    page = tab.page
    page.route("https://*.example.org/**", answer)
    page.goto(f"{STATIC}/prod/console/")
    if api == OTHER:
        page.get_by_role("button", name="Connection").click()
        page.get_by_label("API address").fill(f"{OTHER}/prod/")
        page.get_by_role("button", name="Use", exact=True).click()
    page.goto(f"{STATIC}/prod/console/#/key?topic=bookings&key=console%7C3")
    expect(page.locator("#value")).to_contain_text('"to": "Chur"')
    assert asked == {api}
    page.goto("about:blank")  # the view of a key goes on asking: the clients close before the page


DIFFERENCES = [
    ("{}", '{"a": 1}', [["a", None, 1]]),
    ('{"a": [1, 2]}', '{"a": [1]}', [["a[1]", 2, None]]),
    ('{"a": {"b": 1}}', '{"a": {"b": {"c": 1}}}', [["a.b", 1, {"c": 1}]]),
    ('{"a": null}', '{"a": null}', []),
    ("1", '"1"', [["value", 1, "1"]]),
    ('{"a": [1]}', '{"a": {"0": 1}}', [["a", [1], {"0": 1}]]),
]


@pytest.mark.parametrize(("before", "after", "expected"), DIFFERENCES)
def test_differences_are_found_by_path(modules, before, after, expected):
    script = """async ([before, after]) => {
        const { changes } = await import("./difference.js");
        const found = changes(JSON.parse(before), JSON.parse(after));
        return found.map((each) => [each.path, each.before ?? null, each.after ?? null]);
    }"""
    assert modules.evaluate(script, [before, after]) == expected


def test_numbers_keep_their_digits(modules):
    text = '{"a": 1.50, "b": 123456789012345678901, "c": [1e3, -0.0], "d": "1.50"}'
    script = """async (text) => {
        const json = await import("./json.js");
        return json.inline(json.parse(text));
    }"""
    assert modules.evaluate(script, text) == text


def test_hot_lanes_are_those_with_more_than_twice_the_mean(modules):
    script = """async (rates) => {
        const { hotLanes } = await import("./samples.js");
        return [...hotLanes(new Map(Object.entries(rates)))];
    }"""
    assert modules.evaluate(script, {"0.0": 90, "1.0": 10, "2.0": 10}) == ["0.0"]
    assert modules.evaluate(script, {"0.0": 0.5, "1.0": 0, "2.0": 0}) == []
    assert modules.evaluate(script, {}) == []


def test_a_rate_is_the_difference_of_two_samples_and_old_samples_forget_their_lanes(modules):
    script = """async () => {
        const samples = await import("./samples.js");
        let list;
        for (let n = 0; n < 100; n++) {
            const lanes = [[0, 0], [0, 1], [1, 0], [1, 1]].map(([partition, stripe]) => (
                { partition, stripe, log_end: partition ? 30 * n : 10 * n }));
            list = samples.takeSample({ topic: "t", generation: 1, lag: n, age_ms: n, lanes }, n * 2000);
        }
        return [
            list.length,
            list.filter((each) => each.lanes).length,
            samples.rates(list).at(-1),
            Object.fromEntries(samples.laneRates(list)),
            samples.takeSample({ topic: "t", generation: 2, lanes: [] }, 300_000).length,
        ];
    }"""
    by_lane = {"0.0": 5, "0.1": 5, "1.0": 15, "1.1": 15}
    assert modules.evaluate(script) == [90, 6, 20, by_lane, 1]


def test_a_page_of_a_range_has_as_many_keys_as_its_form_says(tab):
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    page = tab.open("range", topic="bookings")
    expect(page.get_by_label("On a page")).to_have_value("50")
    page.locator("tbody tr").first.wait_for()
    assert [url for url in asked if "/keys?" in url and "limit=50" in url]
    assert not [url for url in asked if "/keys?" in url and "limit=50" not in url]


def found_keys(page):
    return page.locator("tbody td:first-child").all_inner_texts()


def test_records_are_found_by_their_fields_in_order_and_by_pages_and_the_address_keeps_the_question(
    tab, client
):
    name = f"find-{next(NAMES)}"
    for number in range(3):
        last = client.put(
            "bookings", b"%b|%d" % (name.encode(), number), b'{"to": "%b-%d"}' % (name.encode(), number)
        )
    client.get("bookings", f"{name}|2".encode(), Keylane_Min_Position=last, Prefer="wait=20")
    page = tab.open("find", topic="bookings")
    expect(page.get_by_text("Give a condition, or choose an order.")).to_be_visible()
    page.get_by_label("to (text)").fill(f"{name}*")
    page.get_by_label("Order").select_option("-to")
    page.get_by_label("On a page").fill("2")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert found_keys(page) == [f"{name}|2", f"{name}|1"]
    expect(page.get_by_text("3 records meet the conditions.")).to_be_visible()
    expect(page.get_by_role("columnheader", name="to")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.locator("main h2")).to_have_text("Page 2: 1 record")
    assert found_keys(page) == [f"{name}|0"]
    expect(page.get_by_text("These are all.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("to (text)")).to_have_value(f"{name}*")
    expect(page.get_by_label("Order")).to_have_value("-to")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("tbody a").first.click()
    expect(page.locator("h1")).to_have_text(f"Key {name}|2")


def test_a_field_may_have_several_conditions_and_what_is_wrong_with_one_is_said(tab, client):
    for text in ("..", "C*"):
        assert client.request("GET", f"/topics/bookings/find?to={text}").status == 200
    page = tab.open("find", topic="bookings")
    page.goto(f"{page.url}&.to=C..D&.to=Ch*")
    expect(page.get_by_label("to (text)")).to_have_count(2)
    page.goto(f"{page.url}&order=from")
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"the topic has the fields .*to \(text\)"))
    page = tab.open("find", topic="flights")
    expect(page.get_by_text("No field of flights is named")).to_be_visible()


@pytest.fixture
def log_records(client):
    """Records of one key of the topic `joined`, whose text nothing else has; newest last."""
    name = f"log-{next(NAMES)}"
    values = [{"n": n, "who": {"name": f"{name}-{n}"}, "big": 12345678901234567890} for n in range(3)]
    positions = [client.put("joined", name.encode(), json.dumps(each).encode()) for each in values]
    positions.append(client.request("DELETE", f"/topics/joined/keys/{name}").json["position"])
    return name, positions


def shown_positions(page):
    return page.locator("tbody tr td:first-child").all_inner_texts()


def test_records_are_read_newest_first_and_by_a_text(tab, log_records):
    name, positions = log_records
    page = tab.open("records", topic="joined", text=name)
    expect(page.locator("tbody tr")).to_have_count(4)
    assert shown_positions(page) == positions[::-1]
    expect(page.locator("tbody tr").first).to_contain_text("tombstone")
    page.locator("tbody summary").first.click()
    expect(page.locator("tbody pre").first).to_contain_text('"big": 12345678901234567890')
    page.locator("tbody a").first.click()
    expect(page.locator("h1")).to_have_text(f"Key {name}")


def test_records_are_read_from_an_offset_or_a_time_of_a_partition(tab, client, log_records):
    name, positions = log_records
    partition, offset = positions[1].split(":")
    page = tab.open("records", topic="joined", partition=partition, start="offset", at=offset)
    page.locator("tbody tr").first.wait_for()
    assert shown_positions(page)[:3] == positions[1:]
    first = client.request("GET", f"/topics/joined/partitions/{partition}/records?offset={offset}&limit=1")
    at = str(first.json["records"][0]["timestamp"])
    page = tab.open("records", topic="joined", start="time", at=at, text=name)
    expect(page.locator("tbody tr").last).to_contain_text("tombstone")
    assert shown_positions(page)[-3:] == positions[1:]
    page = tab.open("records", topic="joined", start="offset", at="soon")
    expect(page.get_by_text("Start at an offset needs a number.")).to_be_visible()


def test_older_records_follow_the_newest_ones_of_all_partitions(tab, client):
    last = [client.put("flights", b"page-%d" % n, b"1") for n in range(60)]
    page = tab.open("records", topic="flights")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Older records").click()
    expect(page.locator("tbody tr").nth(59)).to_be_visible()
    shown = shown_positions(page)
    assert len(set(shown)) == len(shown)
    assert set(last) <= set(shown)
    times = page.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert times == sorted(times, reverse=True)


def test_new_records_come_by_themselves_and_not_under_who_reads(tab, client, log_records):
    name, _ = log_records
    page = tab.open("records", topic="joined", text=name)
    expect(page.locator("tbody tr")).to_have_count(4)
    fifth = client.put("joined", name.encode(), b'"fifth"')
    expect(page.locator("tbody tr")).to_have_count(5)
    assert shown_positions(page)[0] == fifth
    page.locator("tbody summary").first.click()
    client.put("joined", name.encode(), b'"sixth"')
    fresh = page.get_by_role("button", name="Show 1 new record")
    expect(fresh).to_be_visible()
    expect(page.locator("tbody details[open]")).to_have_count(1)
    fresh.click()
    expect(page.locator("tbody tr").first).to_contain_text("sixth")
    live = page.get_by_role("button", name="Live")
    live.click()
    expect(live).to_have_attribute("aria-pressed", "false")


def test_fields_of_values_become_columns_and_the_address_keeps_them(tab, log_records):
    name, _ = log_records
    page = tab.open("records", topic="joined", text=name)
    page.get_by_role("button", name="who.name").click()
    expect(page.locator("thead th")).to_have_text(["Position", "Written", "Key", "who.name"])
    expect(page.locator("tbody tr").nth(1).locator("td").last).to_have_text(f"{name}-2")
    expect(page.get_by_role("button", name="who.name")).to_be_focused()
    page.reload()
    page.get_by_role("button", name="n", exact=True).click()
    expect(page.locator("thead th")).to_have_text(["Position", "Written", "Key", "who.name", "n"])
    page.get_by_role("button", name="who.name").click()
    assert "fields=n" in page.url


def saved(page, form):
    with page.expect_download() as download:
        page.get_by_role("button", name=form, exact=True).click()
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def test_records_are_exported_as_csv_and_as_json_lines(tab, log_records):
    name, positions = log_records
    page = tab.open("records", topic="joined", text=name)
    file, text = saved(page, "JSON lines")
    assert file == "joined.jsonl"
    assert '"big": 12345678901234567890' in text
    assert [json.loads(line)["position"] for line in text.splitlines()] == positions[::-1]
    page.get_by_role("button", name="who.name").click()
    file, text = saved(page, "CSV")
    rows = list(csv.reader(text.splitlines()))
    assert file == "joined.csv"
    assert rows[0] == ["key", "key_format", "partition", "offset", "timestamp", "who.name"]
    assert [row[-1] for row in rows[1:]] == ["", f"{name}-2", f"{name}-1", f"{name}-0"]


def test_all_of_a_range_is_exported_though_a_page_is_shown(tab, client, bookings):
    page = tab.open("range", topic="bookings", prefix="console|", limit="2")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    page.get_by_label("What to export").select_option("all of it")
    _, text = saved(page, "JSON lines")
    assert [json.loads(line)["key"] for line in text.splitlines()] == ["console|1", "console|2", "console|3"]
    expect(page.get_by_text("3 records as JSON lines")).to_be_visible()


def test_the_whole_topic_is_saved_with_the_token_and_only_if_it_is_complete(tab, client, bookings):
    page = tab.open("range", topic="bookings", prefix="console|", limit="2")
    page.get_by_role("button", name="Connection").click()
    page.get_by_label("Bearer token").fill("s3cret-token")
    page.get_by_role("button", name="Use", exact=True).click()
    with page.expect_request("**/topics/bookings/snapshot") as sent:
        file, text = saved(page, "Whole topic")
    assert sent.value.headers["authorization"] == "Bearer s3cret-token"
    assert file == "bookings.snapshot.jsonl"
    begin, *lines, end = map(json.loads, text.splitlines())
    assert (begin["begin"]["topic"], "at" in end["end"]) == ("bookings", True)
    assert {"console|1", "console|2", "console|3"} <= {line["key"] for line in lines if "key" in line}
    expect(page.get_by_text("The whole topic, complete")).to_be_visible()

    def answer(body: str, status: int = 200) -> None:
        page.unroute("**/topics/bookings/snapshot")
        page.route("**/topics/bookings/snapshot", lambda route: route.fulfill(status=status, body=body))
        page.get_by_role("button", name="Whole topic").click()

    answer(text[: text.rindex('{"end"')])
    expect(page.get_by_text("The connection broke: try again.")).to_be_visible()
    answer('{"problem": {"title": "Gone", "detail": "It was built again", "status": 409}}\n')
    expect(page.get_by_text("It was built again")).to_be_visible()
    answer('{"title": "Not streamed", "detail": "Only keylane serve has it"}', 501)
    expect(page.get_by_text("Only keylane serve has it")).to_be_visible()


def test_a_csv_quotes_what_has_commas_quotes_and_lines(modules):
    script = """async () => {
        const { csvOf } = await import("./download.js");
        const where = { partition: 0, offset: 1, timestamp: 2 };
        return csvOf([{ key: 'a,"b"', ...where, value_format: "text", value: "x\\ny" }], []);
    }"""
    rows = list(csv.reader(io.StringIO(modules.evaluate(script), newline="")))
    assert rows[1] == ['a,"b"', "", "0", "1", "2", "text", "x\ny"]


def test_a_key_is_edited_and_deleted_beside_its_value(tab, client, key):
    client.put("bookings", key, b'{"n": 1.50}')
    page = tab.open("key", topic="bookings", key=key.decode())
    expect(page.locator("#value")).to_contain_text('"n": 1.50')
    page.get_by_role("button", name="Edit").click()
    box = page.get_by_label(f"Value of {key.decode()}")
    expect(box).to_have_value('{"n": 1.50}')
    box.fill('{"n": 2')
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".warning")).to_contain_text("This is not JSON")
    box.fill('{"n": 2}')
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator("#value")).to_contain_text('"n": 2')
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#value")).to_contain_text('"n": 2')
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#value")).to_contain_text("absent")
    expect(page.get_by_role("button", name="Write a value")).to_be_visible()


def test_an_edit_is_not_written_over_a_newer_record_unasked(tab, client, key):
    client.put("bookings", key, b'"mine"')
    page = tab.open("key", topic="bookings", key=key.decode())
    expect(page.locator("#value")).to_contain_text("mine")
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label(f"Value of {key.decode()}")).to_have_value(
        '"mine"'
    )  # it asks for the layout first
    theirs = client.put("bookings", key, b'"theirs"')
    expect(page.locator("#value")).to_contain_text("theirs")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".warning")).to_contain_text(f"position {theirs}")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator("#value")).to_contain_text("mine")


def test_who_may_not_write_is_refused_once_and_has_no_buttons_then(tab, client, key):
    client.put("bookings", key, b"1")
    refusal = {"type": "urn:keylane:problem:forbidden", "title": "Forbidden", "status": 403}
    tab.page.route(
        "**/topics/bookings/keys/*",
        lambda route: (
            route.fulfill(status=403, content_type="application/problem+json", body=json.dumps(refusal))
            if route.request.method == "PUT"
            else route.continue_()
        ),
    )
    page = tab.open("key", topic="bookings", key=key.decode())
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Forbidden")
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)
    page.get_by_label("Key", exact=True).fill("another")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("You may read this topic, and not write it.")).to_be_visible()


def newest(client, topic, key):
    """The newest record of a key as Kafka has it."""
    count = len(client.request("GET", f"/topics/{topic}/partitions").json["partitions"])
    paths = [f"/topics/{topic}/partitions/{number}/records?limit=1000" for number in range(count)]
    found = [each for path in paths for each in client.request("GET", path).json["records"]]
    return max((each for each in found if each["key"] == key), key=lambda each: each["offset"])


def press_write(page, **fields):
    """Fill fields of the form, and press its button."""
    for name, text in fields.items():
        page.get_by_label(name, exact=True).fill(text)
    page.get_by_role("button", name="Write", exact=True).click()


def expect_written(page):
    expect(page.get_by_text("Written: position").last).to_be_visible()


def test_a_record_is_written_with_key_value_and_headers(tab, client, key):
    page = tab.open("write", topic="bookings")
    press_write(page, Key=key.decode(), Value='{"price": 1.50')
    expect(page.get_by_role("alert")).to_have_text("The value is not JSON.")
    press_write(page, Value='{"price": 1.50}')
    expect_written(page)
    found = newest(client, "bookings", key.decode())
    assert (found["value"], found["value_format"]) == ({"price": 1.5}, "json")
    page.get_by_role("button", name="Add a header").click()
    page.get_by_label("Name of a header").fill("trace")
    page.get_by_label("Value of a header").fill("ü-1")
    page.get_by_label("The value is").select_option("text")
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        press_write(page, Value="plain")
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("link", name="Read the key").click()
    expect(page.locator("#value")).to_contain_text("plain")
    headers = {each["name"]: each["value"] for each in newest(client, "bookings", key.decode())["headers"]}
    assert headers["trace"] == "ü-1"
    page.go_back()
    page.get_by_label("The value is").select_option("tombstone")
    press_write(page, Key=key.decode())
    expect_written(page)
    assert newest(client, "bookings", key.decode())["value_format"] == "null"


def test_a_topic_of_a_registry_is_written_by_its_latest_schema(tab, client, key, registry):
    schema = {"type": "record", "name": "Trip", "fields": [{"name": "to", "type": ["null", "string"]}]}
    by_avro(registry.client, "registered", json.dumps(schema), {"to": "Bern"})
    page = tab.open("write", topic="registered")
    press_write(page, Key=key.decode(), Value='{"to": 7}')
    expect(page.get_by_role("alert")).to_contain_text("to")
    press_write(page, Value='{"to": "Olten"}')
    expect_written(page)
    page.get_by_role("link", name="Read the key").click()
    expect(page.locator("#value")).to_contain_text('"to": "Olten"')
    page.go_back()
    page.get_by_label("The value is").select_option("json")
    press_write(page, Key=key.decode(), Value='{"n": 1}')
    expect(page.get_by_role("alert")).to_contain_text("could not read")
    page.get_by_label("Write what readers").check()
    press_write(page)
    expect_written(page)


def test_a_topic_s_settings_are_kafka_s_and_keylane_s(tab):
    page = tab.open("records", topic="bookings")
    page.get_by_role("link", name="Settings").click()
    expect(page.locator("h1")).to_have_text("Settings of bookings")
    expect(page.locator("tr", has=page.get_by_text("cleanup.policy", exact=True))).to_contain_text("delete")
    expect(fact(page, "history_count")).to_have_text("5")
    expect(page.get_by_role("region", name="Partitions").locator("tbody tr")).to_have_count(9)


def test_a_topic_s_own_settings_come_first_and_each_says_where_it_is_from(tab, applied_stack):
    name = f"console-settings-{next(NAMES)}"
    admin = AdminClient({"bootstrap.servers": applied_stack.kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1, config={"retention.ms": "1234567"})])[name].result(30)
    page = tab.open("settings", topic=name)
    rows = page.get_by_role("region", name="Kafka's settings").locator("tbody tr")
    expect(rows.first.locator("td")).to_have_text(["retention.ms", "1234567", "this topic"])
    expect(rows.last).to_contain_text("Kafka's default")


def test_who_may_not_ask_the_cluster_sees_the_settings_without_their_source(tab):
    tab.expected = "403"
    tab.page.route("**/v3/clusters", lambda route: route.fulfill(status=403, json={"title": "No"}))
    page = tab.open("settings", topic="bookings")
    expect(page.locator("tr", has=page.get_by_text("cleanup.policy", exact=True))).to_contain_text("delete")
    expect(page.get_by_role("columnheader", name="From")).to_have_count(0)
    tab.open("groups", topic="bookings")
    expect(page.get_by_role("alert")).to_contain_text("No")


@pytest.fixture(scope="module")
def consumers(applied_stack, bookings):
    """The group `console-group`, which has committed all of `bookings` but one record of a partition."""
    settings = {"bootstrap.servers": applied_stack.kafka_bootstrap, "group.id": "console-group"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    partitions = [TopicPartition("bookings", number) for number in range(9)]
    ends = [consumer.get_watermark_offsets(each)[1] for each in partitions]
    behind = next(number for number, end in enumerate(ends) if end)
    ends[behind] -= 1
    offsets = [TopicPartition("bookings", number, end) for number, end in enumerate(ends)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    return behind


def test_the_consumer_groups_of_a_topic_show_their_lag(tab, consumers):
    page = tab.open("records", topic="bookings")
    page.get_by_role("link", name="Groups").click()
    expect(page.locator("h1")).to_have_text("Consumer groups of bookings")
    row = page.get_by_role("region", name="Consumer groups").locator("tr", has_text="console-group")
    expect(row.locator("td")).to_have_text(["console-group", re.compile(r"^[1-9]\d*$"), "empty", "0", "9"])
    page.get_by_text("console-group by partition").click()
    lag = page.get_by_role("region", name="Lag of console-group").locator("tbody tr")
    expect(lag).to_have_count(9)
    expect(lag.nth(consumers).locator("td").nth(1)).not_to_have_text("0")


def test_a_topic_without_consumer_groups_says_so(tab, consumers):
    page = tab.open("groups", topic="joined")
    expect(page.get_by_text("No consumer group has committed an offset of joined.")).to_be_visible()


def test_an_address_that_names_no_view_says_so(tab):
    page = tab.open("rnage", topic="bookings")
    expect(page.locator("h1")).to_have_text("No such view")
    page.locator("main").get_by_role("link", name="Views").click()
    expect(page.locator("h1")).to_have_text("Views")
    expect(tab.open("").locator("h1")).to_have_text("Topics")
    page = tab.open("range")
    expect(page.get_by_label("Topic", exact=True)).to_have_value("bookings")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("h1")).to_have_text("Keys of bookings")


def test_a_service_without_streams_is_asked_for_one_once(tab, bookings):
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.route("**/changes", lambda route: route.fulfill(status=501, body="{}"))
    for number in (1, 2, 3):
        page = tab.open("key", topic="bookings", key=f"console|{number}")
        expect(page.locator("#value pre")).to_be_visible()
    assert len([url for url in asked if url.endswith("/changes")]) == 1


def test_examples_name_topics_and_views_of_the_service(tab):
    topics = {"topics": [{"topic": "orders", "partitions": 1}, {"topic": "parcels", "partitions": 1}]}
    tab.page.route("**/topics?*", lambda route: route.fulfill(json=topics))
    tab.page.route("**/topics", lambda route: route.fulfill(json=topics))
    tab.page.route("**/views", lambda route: route.fulfill(json={"views": [{"view": "totals"}]}))
    expected = {
        "get_key": {"topic": "orders", "key": ""},
        "join_topics": {"topics": "orders,parcels"},
        "get_windows": {"view": "totals", "key": ""},
    }
    for operation, fields in expected.items():
        page = tab.open("try", operation=operation)
        for name, value in fields.items():
            expect(page.locator(f'[name$=":{name}"]')).to_have_value(value)
    page = tab.open("try", operation="push")
    expect(page.get_by_label("Body")).to_have_value(re.compile('"topic":"orders"'))
    page = tab.open("try", operation="get_v3_cluster")
    expect(page.locator('[name="path:cluster"]')).not_to_have_value(re.compile("^(lkc-0|)$"))


def test_a_route_without_fields_has_no_empty_box(tab):
    page = tab.open("try", operation="get_brokers")
    page.locator("form.try").wait_for()
    assert page.locator("form.try .fields").count() == 0
    expect(tab.open("try").locator("select[name=operation]")).to_have_value("get_key")
    expect(tab.open("try", operation="nothing").get_by_role("alert")).to_contain_text("No such route")


def test_labels_of_a_chart_neither_overlap_nor_are_cut(modules):
    script = """async ([step, room]) => {
        const { columns } = await import("./charts.js");
        const start = (n) => 1372896300000 + n * step;
        const bar = (_, n) => ({ start: start(n), value: n * 1234567, final: true });
        const bars = Array.from({ length: 90 }, bar);
        document.querySelector("main").replaceChildren(columns(bars, "a chart", room));
        const boxes = (of) => [...document.querySelectorAll(of)].map((each) => each.getBoundingClientRect());
        const [svg] = boxes(".chart svg");
        const isCut = ({ left, right }) => left < svg.left - 0.5 || right > svg.right + 0.5;
        const row = boxes(".chart .when-label");
        const isClose = (each, index) => each.left < row[index].right + 4;
        const [cut, close] = [boxes(".chart text").filter(isCut), row.slice(1).filter(isClose)];
        return [cut.length, close.length, row.length > (room > 500 ? 2 : 0)];
    }"""
    for step in (60_000, 86_400_000):
        for room in (300, 900):
            assert modules.evaluate(script, [step, room]) == [0, 0, True]


VIEWS = {
    "topics": ({}, "tbody td"),
    "brokers": ({}, "tbody td"),
    "lanes": ({"topic": "striped"}, ".tile"),
    "records": ({"topic": "bookings", "start": "oldest", "fields": "to"}, "tbody a"),
    "range": ({"topic": "bookings", "prefix": "console|"}, "tbody a"),
    "find": ({"topic": "bookings", ".to": "C*", "order": "-to"}, "tbody a"),
    "key": ({"topic": "bookings", "key": "console|1"}, ".timeline li"),
    "schemas": ({"topic": "registered"}, "main p, main pre"),
    "write": ({"topic": "registered"}, "textarea"),
    "groups": ({"topic": "bookings"}, "tbody td"),
    "settings": ({"topic": "bookings"}, "tbody code"),
    "view": ({"view": "puts", "key": "console"}, ".chart rect"),
    "try": ({"operation": "put_key"}, "form.try"),
    "nothing": ({}, ".picks a"),
}


def dress(page):
    """Open what opens and loads nothing, and make charts wider than any screen.

    They scroll then, and must take the focus.
    """
    page.evaluate(
        """() => {
            document.querySelectorAll('details:not([data-loads])').forEach((each) => { each.open = true; });
            document.querySelectorAll('.fold').forEach((each) => each.click());
            document.querySelectorAll('.chart svg').forEach((each) => { each.style.width = '2000px'; });
        }"""
    )


def axe_faults(page, name, size):
    faults = []
    page.set_viewport_size(size)
    for scheme, options in AXE_OPTIONS.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = Axe().run(page, options=options).response["violations"]
        faults += [(name, size["width"], scheme, each["id"], each["nodes"][0]["html"]) for each in found]
    return faults


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(PHONE, id="phone"),
        pytest.param(TABLET, id="tablet", marks=pytest.mark.long),
        pytest.param(DESK, id="desk", marks=pytest.mark.long),
    ],
)
def test_no_view_scrolls_sideways_and_axe_finds_nothing_at_any_width(tab, bookings, consumers, size):
    faults, wide, high = [], {}, set()
    tab.page.set_viewport_size(size)
    for name, (query, ready) in VIEWS.items():
        page = tab.open(name, **query)
        page.locator(ready).first.wait_for()
        page.get_by_text("redis ready").wait_for(state="attached")
        wide[name] = page.evaluate("document.documentElement.scrollWidth")
        high.add(page.locator(".bar").evaluate("(bar) => bar.offsetHeight"))
        dress(page)
        faults += axe_faults(page, name, size)
    assert wide == dict.fromkeys(VIEWS, size["width"])
    assert max(high) <= TWO_LINES
    tab.open("range", topic="flights", prefix="N").get_by_role("alert").wait_for()
    faults += axe_faults(tab.page, "problem", size)
    tab.page.set_viewport_size(DESK)
    tab.page.get_by_role("button", name="Connection").click()
    faults += axe_faults(tab.page, "dialog", size)
    tab.page.get_by_role("button", name="Cancel").click()
    page = tab.open("key", topic="bookings", key="console|2")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Value of console|2").wait_for()
    faults += axe_faults(page, "edit", size)
    assert faults == []


def test_the_reference_has_each_operation_and_its_links_lead_to_the_forms(tab, applied_stack):
    page = tab.page
    page.goto(f"{applied_stack.http_url}/docs#get_history")
    document = json.loads((FOLDER / "openapi.json").read_text(encoding="utf-8"))
    methods = [each for path in document["paths"].values() for name, each in path.items() if name != "head"]
    expect(page.locator("section.operation")).to_have_count(len(methods))
    for each in methods:
        expect(page.locator(f"#{each['operationId']} .verb")).to_have_count(1)
    expect(page.locator("#get_history h3")).to_be_in_viewport()
    expect(page.locator("#get_history")).to_contain_text("limit")
    page.get_by_label("Filter routes").fill("history")
    expect(page.locator(".contents li a")).to_have_text([re.compile("/history$")])
    expect(page.locator("section.operation:visible")).to_have_count(1)
    page.get_by_label("Filter routes").fill("/topics/{topic}/keys")
    dress(page)
    faults = axe_faults(page, "reference", PHONE)
    assert (faults, page.evaluate("document.documentElement.scrollWidth")) == ([], PHONE["width"])
    page.locator("#get_history").get_by_role("link", name="Try it").click()
    expect(page.locator("select[name=operation]")).to_have_value("get_history")
    page.get_by_role("link", name="Reference").click()
    expect(page.locator("#get_history h3")).to_be_in_viewport()


def test_a_row_is_a_card_on_a_phone_which_names_each_column_and_the_form_folds_away(tab, bookings):
    tab.page.set_viewport_size(PHONE)
    page = tab.open("range", topic="bookings", prefix="console|", fields="to,price,seat.car")
    row = page.locator("tbody tr").first
    row.wait_for()
    labels = row.locator("td").evaluate_all(
        "all => all.map((each) => getComputedStyle(each, '::before').content)"
    )
    assert labels == [f'"{name}"' for name in ("Key", "to", "price", "seat.car", "Position", "Written")]
    boxes = [cell.bounding_box() for cell in row.locator("td").all()]
    assert all(one["y"] + one["height"] <= other["y"] for one, other in itertools.pairwise(boxes))
    assert {box["x"] for box in boxes} == {boxes[0]["x"]}
    expect(page.get_by_role("cell", name="console|1")).to_be_visible()
    expect(page.get_by_label("Prefix")).to_be_hidden()
    page.get_by_role("button", name="Shown: console|").click()
    expect(page.get_by_label("Prefix")).to_be_visible()
