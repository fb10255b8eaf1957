"""The alert rules and the dashboard: Prometheus reads them, and they name metrics that exist."""

import contextlib
import json
import re
import subprocess

import pytest
import yaml

from support.dwell import ROOT

FOLDER = ROOT / "examples/monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
PAGE = (ROOT / "docs/metrics.md").read_text()
# The values of variables that Grafana puts into an expression.
VARIABLES = {"$__rate_interval": "5m", "$job": "dwell", "$instance": ".*"}
ROW = re.compile(r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (\w+) \| (.*) \|$", re.M)
WORD = re.compile(r"\b(?:dwell|process)_\w+\b(?=[\s{\[()/*>=]|$)")
SELECTED = re.compile(r'(\w+)\{[^}]*?(\w+)="(\w+)"')
ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def promtool(*arguments):
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def series():
    """Each series of the page of metrics with its labels and the values that the page lists."""
    found = {}
    for name, label, kind, meaning in ROW.findall(PAGE):
        values = re.search(r"Values of `\w+`: (.*)\.$", meaning)
        listed = set(re.findall(r"`([^`]+)`", values[1])) if values else set()
        suffixes = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
        for suffix in suffixes:
            found[name + suffix] = (label, listed)
    return found


SERIES = series()


def expressions():
    """Every expression of both files, by the place where it is."""
    found = {rule["alert"]: rule["expr"] for rule in RULES}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        found[annotation["name"]] = annotation["expr"]
    for name, value in VARIABLES.items():
        found = {place: text.replace(name, value) for place, text in found.items()}
    return found


EXPRESSIONS = expressions()


def test_the_page_of_metrics_is_read():
    assert len(SERIES) > 80
    assert SERIES["dwell_config_reloads_total"] == ("outcome", {"taken", "refused"})
    assert "dwell_wake_latency_seconds_bucket" in SERIES
    assert SERIES["dwell_route_responses_total"][0] == "route,status_class"


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_an_expression_names_series_that_exist(place):
    expression = EXPRESSIONS[place]
    assert "$" not in expression
    names = set(WORD.findall(expression))
    assert names - {"dwell"} or "up{" in expression, expression
    assert names <= SERIES.keys(), names - SERIES.keys()
    for name, label, value in SELECTED.findall(expression):
        if name in SERIES and label not in ADDED_BY_PROMETHEUS:
            labels, values = SERIES[name]
            assert (label in labels.split(","), value in values) == (True, True), expression


def test_a_process_has_the_series_of_the_page(lone_edge):
    with contextlib.closing(lone_edge.store()) as store:
        # One command in 64 is measured.
        for number in range(64):
            store.set("a", str(number))
    text = lone_edge.admin("/-/metrics").body.decode()
    scraped = set(re.findall(r"^(\w+)(?:\{| )", text, re.M))
    # Series of parts that this process does not have.
    absent = re.compile(r"dwell_(memcached|redis|feed|upstream|tls|presence)_")
    missing = {name for name in SERIES if not absent.match(name)} - scraped
    assert not missing
    assert {name for name in scraped if not name.startswith("go_")} <= SERIES.keys()


def test_prometheus_reads_the_files(tmp_path):
    promtool("check", "config", FOLDER / "prometheus.yml")
    # promtool parses an expression as a part of a rule.
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(EXPRESSIONS.values())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


def test_the_dashboard_has_panels_without_overlap():
    places, ids = {}, set()
    for panel in DASHBOARD["panels"]:
        ids.add(panel["id"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in places, (panel["title"], places[x, y])
                places[x, y] = panel["title"]
    assert len(ids) == len(DASHBOARD["panels"])
    assert DASHBOARD["uid"] == "dwell"


GROWS, STILL = "0+60x200", "0x200"

# For each alert: series that raise it, and the same where all is well.
CASES = {
    "DwellDown": [("up", "0x200", "1x200")],
    "DwellServerErrors": [
        ('dwell_http_requests_total{status_class="5xx"}', "0+2x200", "0+1x200"),
        ('dwell_http_requests_total{status_class="2xx"}', "0+100x200", "0+200x200"),
    ],
    "DwellPollsRefused": [('dwell_polls_total{outcome="refused"}', GROWS, STILL)],
    "DwellConnectionsRefused": [
        ('dwell_connections_refused_total{reason="descriptors"}', GROWS, STILL)
    ],
    "DwellOpenFiles": [
        ("process_open_fds", "900x200", "800x200"),
        ("process_max_fds", "1000x200", "1000x200"),
    ],
    "DwellApplicationServerDown": [('dwell_upstream_server_up{server="a:1"}', "0x200", "1x200")],
    "DwellMemcachedDown": [('dwell_memcached_server_up{server="a:1"}', "0x200", "1x200")],
    "DwellRedisDown": [('dwell_redis_server_up{server="a:1"}', "0x200", "1x200")],
    "DwellRedisPrimaryDown": [
        ('dwell_redis_primary_up{server="a:1"}', "0x200", "1x200"),
        ('dwell_redis_primary_up{server="b:1"}', "1x200", "1x200"),
    ],
    "DwellSlowWakes": [
        ('dwell_wake_latency_seconds_bucket{le="0.5"}', "0+50x200", "0+100x200"),
        ('dwell_wake_latency_seconds_bucket{le="1"}', "0+100x200", "0+100x200"),
        ('dwell_wake_latency_seconds_bucket{le="+Inf"}', "0+100x200", "0+100x200"),
    ],
    "DwellReloadRefused": [("dwell_config_last_reload_successful", "0x200", "1x200")],
    "DwellUpgradeFailed": [("dwell_upgrades_failed_total", GROWS, STILL)],
    "DwellCertificateExpires": [
        ('dwell_tls_certificate_expiry_seconds{name="a"}', "86400x200", "8640000x200")
    ],
    "DwellStoreEvicts": [("dwell_store_evictions_total", GROWS, STILL)],
    "DwellSlowClientsCut": [("dwell_output_cuts_total", GROWS, STILL)],
    "DwellPresenceDropped": [('dwell_webhook_events_total{outcome="dropped"}', GROWS, STILL)],
    "DwellLogDropped": [
        ("dwell_log_dropped_total", STILL, STILL),
        ("dwell_access_log_dropped_total", GROWS, STILL),
    ],
}


def test_every_alert_has_a_case():
    assert [rule["alert"] for rule in RULES] == list(CASES)
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "ticket"}


def of_job(name):
    """The series with the labels that a scrape adds."""
    added = 'job="dwell",instance="127.0.0.1:9090"'
    return f"{name[:-1]},{added}}}" if name.endswith("}") else f"{name}{{{added}}}"


def labels(alert):
    (rule,) = (rule for rule in RULES if rule["alert"] == alert)
    found = {"severity": rule["labels"]["severity"], "instance": "127.0.0.1:9090"}
    if not re.search(r"\bby \(", rule["expr"]):
        found["job"] = "dwell"
        for name in re.findall(r'(\w+="[^"]*")\}', CASES[alert][0][0]):
            label, value = name.split("=")
            found[label] = value.strip('"')
    return found


def summary(alert, found):
    (rule,) = (rule for rule in RULES if rule["alert"] == alert)
    text = rule["annotations"]["summary"]
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: found[match[1]], text)


@pytest.mark.parametrize(
    ("primaries", "raised"),
    [
        # No primary is known, or all of them respond and a slot has none.
        ({}, ["DwellRedisDown"]),
        ({"a:1": 1, "b:1": 1}, ["DwellRedisDown"]),
        ({"a:1": 0, "b:1": 1}, ["DwellRedisPrimaryDown"]),
        ({"a:1": 0, "b:1": 0}, ["DwellRedisDown"]),
    ],
)
def test_one_fault_of_a_cluster_raises_one_alert(primaries, raised, tmp_path):
    given = [('dwell_redis_server_up{server="whole"}', 0)]
    given += [(f'dwell_redis_primary_up{{server="{name}"}}', up) for name, up in primaries.items()]
    series = [{"series": of_job(name), "values": f"{up}x200"} for name, up in given]
    at = []
    for alert, server in (("DwellRedisDown", "whole"), ("DwellRedisPrimaryDown", "a:1")):
        found = labels(alert) | {"server": server}
        expected = {"exp_labels": found, "exp_annotations": {"summary": summary(alert, found)}}
        alerts = [expected] if alert in raised else []
        at.append({"eval_time": "2h30m", "alertname": alert, "exp_alerts": alerts})
    test = {"interval": "1m", "input_series": series, "alert_rule_test": at}
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "tests": [test]}))
    promtool("test", "rules", file)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_and_ends(alert, tmp_path):
    found = labels(alert)
    raised = {"exp_labels": found, "exp_annotations": {"summary": summary(alert, found)}}
    tests = []
    for place, expected in ((1, [raised]), (2, [])):
        given = [{"series": of_job(case[0]), "values": case[place]} for case in CASES[alert]]
        at = {"eval_time": "2h30m", "alertname": alert, "exp_alerts": expected}
        tests.append({"interval": "1m", "input_series": given, "alert_rule_test": [at]})
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "tests": tests}))
    promtool("test", "rules", file)
