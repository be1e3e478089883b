"""The ceiling report: its shape and its honesty, never its speed."""
import json
import os
import signal
import subprocess

import pytest

from cluster import HOLDFAST, run, wait_for


@pytest.mark.timeout(600)
def test_a_quick_ceiling_report_is_whole_and_honest(shared, work):
    out = os.path.join(work, "report")
    run(HOLDFAST, "bench", "ceiling", "--data", shared.data, "--mount", shared.mnt, "--out", out, "--quick", timeout=560)
    r = json.load(open(os.path.join(out, "results.json")))
    assert {"kernel", "cpu", "drive", "transport"} <= set(r["environment"])
    assert len(r["rows"]) >= 8
    seen = set()
    for row in r["rows"]:
        assert {"job", "unit", "depth", "engine", "durability", "raw", "pass", "mount", "percent", "cpu_us_per_op", "load", "cpu_pressure"} <= set(row)
        assert row["durability"] in ("none", "device-written", "fdatasync")
        for rung in ("raw", "pass", "mount"):
            v = row[rung]
            assert 0 < v["min"] <= v["median"] <= v["max"], (row["job"], rung, v)
        if row["percent"] is not None:
            assert abs(row["percent"] - 100 * row["mount"]["median"] / row["raw"]["median"]) < 0.2
        seen.add((row["depth"], row["durability"]))
    assert {(1, "device-written"), (32, "device-written"), (1, "fdatasync")} <= seen
    md, html = (open(os.path.join(out, f"report.{e}")).read() for e in ("md", "html"))
    assert "<svg" in html and "http://" not in html.replace("http://www.w3.org/", "") and "%" in md
    before = html
    run(HOLDFAST, "bench", "render", os.path.join(out, "results.json"))
    assert open(os.path.join(out, "report.html")).read() == before, "the report is drawn only from results.json"
    assert not [f for f in os.listdir(shared.mnt) if "bench" in f or f.endswith(".0.0")], "it cleans up"


def test_an_interrupted_ceiling_run_leaves_nothing(shared, work):
    out = os.path.join(work, "report")
    p = subprocess.Popen([HOLDFAST, "bench", "ceiling", "--data", shared.data, "--mount", shared.mnt, "--out", out, "--quick"], stderr=subprocess.PIPE, text=True)
    made = lambda d: [n for n in os.listdir(d) if n.startswith(".holdfast-bench.")]
    beside = os.path.dirname(shared.data)
    try:
        mounted = lambda: "holdfast-pass" in open("/proc/mounts").read()
        wait_for("the run to begin", lambda: mounted() and made(shared.mnt) and made(beside), 60)
        p.send_signal(signal.SIGINT)
        assert p.wait(60) != 0
    finally:
        p.kill()
    assert "interrupted" in p.stderr.read()
    assert not mounted() and not made(shared.mnt) and not made(beside)
    assert not os.path.exists(os.path.join(out, "results.json"))
