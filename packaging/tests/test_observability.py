"""Alerts and dashboards: valid for Prometheus, complete, and only about metrics that a running Egret has."""

import json
import re
import subprocess

from support import PACKAGING, ROOT, Scratch, alone, run

WATCHED = PACKAGING / "observability"
NAME = re.compile(r"\begret_[a-z0-9_]+")
# The config has one of everything, so that every metric has its family.
CONFIG = """
gateway: { listen: [127.0.0.1:8000], workers: 1 }
control: { listen: 127.0.0.1:8001 }
data_dir: DATA
cluster: { name: tests, redis: { url: "redis://127.0.0.1:1" }, key: "${env:EGRET_CLUSTER_KEY}" }
interception: { hosts: [intercepted.example] }
exporters: { archive: { type: har, directory: DATA/har } }
providers: { api: { url: "http://127.0.0.1:1" } }
accounts: { key: { provider: api, bearer: { token: "${env:EGRET_CLUSTER_KEY}" } } }
flows:
  - name: api
    match: { provider: api }
    remedies: [ { authenticate: { account: key } }, { cache: {} } ]
    diagnoses: [ { metrics: { labels: [consumer], tokens: true } } ]
"""


class Observability(Scratch):
    def metrics(self):
        """Returns the names of the metrics of a running Egret, and those of their series."""
        self.unpack()
        run(self.egret, "ca", "init", "--host", "intercepted.example", cwd=self.folder)
        config = self.folder / "egret.yaml"
        config.write_text(CONFIG.replace("DATA", str(self.folder / "egret-data")))
        command = [self.egret, "run", "--config", config]
        script = (
            '"$@" & pid=$!; trap "kill $pid" EXIT; for _ in $(seq 500); do '
            "curl --silent --fail http://127.0.0.1:8001/metrics && exit; sleep 0.02; done; exit 1"
        )
        key = {"EGRET_CLUSTER_KEY": "a key for tests, of 32 bytes at least", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        printed = run(*alone("sh", "-c", script, "sh", *command), env=key).stdout
        families = dict(re.findall(r"^# TYPE (\S+) (\S+)", printed, re.M))
        series = {name for name, kind in families.items() if kind != "histogram"}
        for name, kind in families.items():
            if kind == "histogram":
                series |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        return series

    @property
    def egret(self):
        return next(self.folder.glob("egret-*-linux-*")) / "egret"

    def test_every_alert_and_every_panel_is_about_metrics_of_a_running_egret(self):
        known = self.metrics()
        self.assertGreater(len(known), 60)
        for expression in [*self.alerts().values(), *self.expressions()]:
            unknown = set(NAME.findall(expression)) - known
            self.assertEqual(unknown, set(), expression)

    def test_every_alert_has_a_case_and_every_case_passes(self):
        run("promtool", "check", "rules", WATCHED / "alerts.yaml")
        run("promtool", "test", "rules", "alerts_test.yaml", cwd=WATCHED)
        cases = (WATCHED / "alerts_test.yaml").read_text()
        for name in self.alerts():
            self.assertRegex(cases, rf"alertname: {name}\b[^\n]*(\n\s+)?.*exp_alerts:[ \n]+(\[\{{|- )", name)

    def test_the_dashboard_is_the_one_that_its_script_writes(self):
        written = subprocess.run([WATCHED / "dashboard"], check=True, capture_output=True, text=True).stdout
        self.assertEqual((WATCHED / "grafana" / "egret.json").read_text(), written)

    def test_prometheus_understands_every_expression_of_the_dashboard(self):
        rules = [
            {"record": f"panel:{number}", "expr": self.filled(expression)}
            for number, expression in enumerate(self.expressions())
        ]
        self.assertGreater(len(rules), 25)
        file = self.folder / "rules.json"
        file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        run("promtool", "check", "rules", file)

    def test_every_variable_of_the_dashboard_is_used(self):
        text = (WATCHED / "grafana" / "egret.json").read_text()
        for variable in json.loads(text)["templating"]["list"]:
            name = variable["name"]
            self.assertTrue(f"${name}" in text or f"${{{name}}}" in text, name)

    def test_the_page_about_metrics_shows_no_other_alerts(self):
        page = (ROOT / "docs/how-to/watch-with-metrics.md").read_text()
        for name in re.findall(r"alert: (\w+)", page):
            self.assertIn(name, self.alerts())

    @staticmethod
    def alerts():
        """Returns the alerts by name, each with its expression."""
        text = (WATCHED / "alerts.yaml").read_text()
        found = re.findall(r"- alert: (\w+)\n.*?expr: (.*?)\n        (?:for|labels):", text.replace("\n        #", "\n#"), re.S)
        if len(found) != text.count("- alert:"):
            raise AssertionError(f"{len(found)} alerts read, {text.count('- alert:')} there")
        return dict(found)

    @staticmethod
    def expressions():
        """Returns all expressions of the dashboard."""
        dashboard = json.loads((WATCHED / "grafana" / "egret.json").read_text())
        return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]

    @staticmethod
    def filled(expression):
        return expression.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$provider", ".*")
