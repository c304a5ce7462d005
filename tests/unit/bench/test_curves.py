from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

SVG = "{http://www.w3.org/2000/svg}"
DECADES = [(10.0, 0.0), (100.0, 50.0), (1000.0, 100.0)]


@pytest.fixture
def curves(bench_module):
    return bench_module("curves")


def drawn(curves, *panels):
    return ET.fromstring(curves.draw('Reads of "a" & <b>', panels))  # noqa: S314 our own


def circles(root):
    return [(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.iter(f"{SVG}circle")]


def test_a_curve_is_logarithmic_in_x_and_begins_at_zero_in_y(curves):
    (x1, y1), (x2, y2), (x3, y3) = circles(drawn(curves, curves.Panel("ms", "keys", {"a": DECADES})))
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert (y1, y3) == (curves.HEIGHT - curves.BOTTOM, curves.TOP)
    assert y2 == pytest.approx((y1 + y3) / 2, abs=0.2)


def test_panels_lie_side_by_side_and_only_several_lines_are_named(curves):
    one = curves.Panel("ms", "keys", {"alone": DECADES})
    two = curves.Panel("ms", "keys", {"ours": DECADES, "theirs": DECADES})
    root = drawn(curves, one, two)
    left, right = circles(root)[:3], circles(root)[3:]
    assert max(x for x, _ in left) < curves.WIDTH / 2 < min(x for x, _ in right)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"ours", "theirs"} <= set(texts)
    assert "alone" not in texts
    assert 'Reads of "a" & <b>' in texts


def test_a_curve_over_time_is_linear_from_zero_and_has_no_dots(curves):
    panel = curves.Panel("MiB", "minutes", {"a": [(15.0, 1.0), (30.0, 1.0), (60.0, 2.0)]}, over_time=True)
    root = drawn(curves, panel)
    assert circles(root) == []
    (line,) = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "s s0"]
    xs = [float(point.split()[0]) for point in line.removeprefix("M").split("L")]
    assert xs[0] - curves.LEFT == pytest.approx((xs[2] - curves.LEFT) / 4, abs=0.2)
    assert xs[2] == pytest.approx(curves.WIDTH - curves.RIGHT)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"0", "20", "40", "60"} <= set(texts)


def test_a_drawing_is_readable_on_a_dark_page(curves):
    root = drawn(curves, curves.Panel("ms", "keys", {"a": DECADES}))
    light, _, dark = root.find(f"{SVG}style").text.partition("prefers-color-scheme: dark")
    for name in ("text", ".bg", ".grid", ".s0", ".p3"):
        assert re.search(rf"\n\s+{re.escape(name)} {{", light), name
        assert re.search(rf"\n\s+{re.escape(name)} {{", dark), name


def test_a_single_point_is_in_the_middle(curves):
    ((x, _),) = circles(drawn(curves, curves.Panel("ms", "keys", {"a": [(9.0, 4.0)]})))
    assert x == pytest.approx((curves.LEFT + curves.WIDTH - curves.RIGHT) / 2)


def test_a_curve_without_points_is_refused(curves):
    with pytest.raises(ValueError, match="no points"):
        curves.draw("empty", [curves.Panel("ms", "keys", {"a": []})])


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(0, [0, 1]), (100, [0, 20, 40, 60, 80, 100]), (7.3, [0, 2, 4, 6, 8]), (0.9, [0, 0.2, 0.4, 0.6, 0.8, 1])],
)
def test_the_y_axis_has_round_ticks_up_to_the_highest_point(curves, most, ticks):
    assert curves.y_ticks(most) == pytest.approx(ticks)


def test_labels_of_the_x_axis_do_not_overlap(curves):
    values = [2**power for power in range(11)]
    found = curves.with_room(values, lambda x: x)
    assert found[0] == 1024
    assert all(high - low >= curves.LABEL_PX for high, low in itertools.pairwise(found))
    assert [curves.short(number) for number in (0, 0.25, 27, 1024, 300_000, 5e6)] == [
        "0",
        "0.25",
        "27",
        "1,024",
        "300 K",
        "5 M",
    ]


@pytest.fixture
def scale(bench_module, monkeypatch, tmp_path):
    monkeypatch.setattr(bench_module("harness"), "RESULTS", tmp_path)
    return bench_module("bench_scale")


def run_of(scale, tmp_path, until_s):
    chosen = SimpleNamespace(set=[])
    return scale.Run(scale.QUICK, tmp_path, chosen, until_s)


def test_each_point_is_announced_and_none_begins_after_the_time_is_up(scale, tmp_path, capsys):
    run = run_of(scale, tmp_path, float("inf"))
    points = run.points("keys", (10, 2000, 30_000))
    assert next(points) == 10
    run.until_s = 0.0
    assert list(points) == []
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "keys 10",
        "the time is up, left out",
    ]


def test_a_curve_is_reported_and_drawn_from_the_points_that_were_measured(scale, tmp_path, capsys):
    run = run_of(scale, tmp_path, float("inf"))
    figures = {name: 3.0 for names in scale.READS.panels.values() for name in names}
    run.finish(scale.MEMORY, {})
    run.finish(scale.READS, {1000: figures, 10_000: figures})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scale-lookup.json", "scale-lookup.svg"]
    assert (tmp_path / "scale-lookup.svg").read_text().count("<circle") == 8
    assert "keys: 10,000" in capsys.readouterr().out
