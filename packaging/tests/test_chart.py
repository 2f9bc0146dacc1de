"""Chart, manifests and compose file, as Kubernetes' own schemas and Helm read them. No API server has seen them."""

import json
import os
from pathlib import Path

import kubernetes_validate
import yaml
from support import PACKAGING, ROOT, Scratch, run

HERE = PACKAGING / "tests" / "chart"
CHART = PACKAGING / "chart"
VERSIONS = ("1.29.0", "1.33.0", "1.37.0")
CASES = ("plain", "full", "open")
TOOLS = ROOT / ".peers" / "bin"
# This Helm takes a cluster for an old one unless it is told.
TEMPLATE = (TOOLS / "helm", "template", "egret", CHART, "--kube-version", VERSIONS[1])
SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
MANIFEST = PACKAGING / "manifests" / "gateway.yaml"
DEFINITIONS = "/api/_definitions.json#"
KINDS = (
    "configmap",
    "deployment",
    "horizontalpodautoscaler",
    "networkpolicy",
    "pod",
    "poddisruptionbudget",
    "secret",
    "service",
    "serviceaccount",
)
# Kinds of the Prometheus Operator, whose schemas are not Kubernetes'.
OTHERS = "PodMonitor,PrometheusRule"


def render(case):
    """Returns the objects of the chart with the values of a case, as text."""
    return run(*TEMPLATE, "--namespace", "egress", "--values", HERE / f"{case}.yaml").stdout


def objects(text):
    """Returns the objects by kind and name."""
    return {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(text) if found}


def write_schemas(folder):
    """Writes Kubernetes' schemas for kubeconform, which does not follow references from one file to another."""
    for version in VERSIONS:
        source, target = SCHEMAS / f"v{version}-local-strict", folder / f"v{version}"
        target.mkdir(parents=True)
        definitions = json.loads((source / "_definitions.json").read_text())["$defs"]
        shared = json.dumps(definitions).replace(DEFINITIONS, "#")
        for path in source.glob("*-*.json"):
            schema = path.read_text().strip().replace(DEFINITIONS, "#")
            if any(path.name.startswith(f"{kind}-") for kind in KINDS):
                (target / path.name).write_text(f'{schema[:-1]}, "$defs": {shared}}}')


class Chart(Scratch):
    def test_helm_finds_nothing_to_complain_about(self):
        for case in CASES:
            run(TOOLS / "helm", "lint", "--strict", CHART, "--values", HERE / f"{case}.yaml")

    def test_a_value_that_does_not_exist_is_refused(self):
        run(*TEMPLATE)
        for wrong in ("replica=2", "networkPolicy.force=true", "replicas=0"):
            refused = run(*TEMPLATE, "--set", wrong, check=False)
            self.assertEqual(refused.returncode, 1, wrong)
            self.assertIn("don't meet the specifications of the schema", refused.stderr)

    def test_the_renderings_are_the_committed_ones(self):
        for case in CASES:
            golden = HERE / "golden" / f"{case}.yaml"
            if os.environ.get("GOLDEN") == "write":
                golden.parent.mkdir(exist_ok=True)
                golden.write_text(render(case))
            self.assertEqual(golden.read_text(), render(case), f"{case}: see GOLDEN=write in {Path(__file__).name}")

    def test_the_manifest_is_the_rendering_of_the_plain_case(self):
        head = "# The chart with its defaults: `kubectl create secret generic egret-control --from-literal=token=...` first.\n"
        if os.environ.get("GOLDEN") == "write":
            MANIFEST.write_text(head + render("plain"))
        self.assertEqual(MANIFEST.read_text(), head + render("plain"))

    def test_three_versions_of_kubernetes_accept_every_object(self):
        files = []
        for case in CASES:
            files.append(self.folder / f"{case}.yaml")
            files[-1].write_text(render(case))
        schemas = self.folder / "schemas"
        write_schemas(schemas)
        location = f"{schemas}/{{{{.NormalizedKubernetesVersion}}}}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
        for version in VERSIONS:
            command = [TOOLS / "kubeconform", "-strict", "-summary", "-output", "json", "-skip", OTHERS]
            command += ["-kubernetes-version", version, "-schema-location", location]
            summary = json.loads(run(*command, *files, PACKAGING / "manifests" / "sidecar.yaml").stdout)["summary"]
            self.assertEqual((summary["invalid"], summary["errors"]), (0, 0), version)
            self.assertGreater(summary["valid"], 20, version)

    def test_egret_accepts_the_configs(self):
        binary = self.unpack() / "egret"
        rendered = [objects(render(case))["ConfigMap", "egret"] for case in CASES]
        rendered.append(objects((PACKAGING / "manifests" / "sidecar.yaml").read_text())["ConfigMap", "egret"])
        texts = [found["data"]["egret.yaml"] for found in rendered]
        texts += [(PACKAGING / name / "egret.yaml").read_text() for name in ("system", "image", "compose")]
        environment = {"EGRET_TOKEN": "a token for tests", "EGRET_CLUSTER_KEY": "a key for tests, of 32 bytes at least"}
        for name in ("checkout", "reports"):
            token = self.folder / name
            token.write_text(f"the token of {name}".replace(" ", "-"))
            token.chmod(0o440)
        for text in texts:
            file = self.folder / "egret.yaml"
            file.write_text(text.replace("/etc/egret-clients", str(self.folder)))
            run(binary, "check", file, env=environment)

    def test_the_policies_force_all_traffic_of_applications_through_egret(self):
        for case, labels in (("plain", {"egress": "egret"}), ("full", {"app": "shop"})):
            found = objects(render(case))
            pods = found["Deployment", "egret"]["spec"]["template"]["metadata"]["labels"]
            policy = found["NetworkPolicy", "egret-applications"]["spec"]
            self.assertEqual(policy["podSelector"]["matchLabels"], labels)
            self.assertEqual(policy["policyTypes"], ["Egress"])
            names, egret = policy["egress"]
            self.assertEqual({port["port"] for port in names["ports"]}, {53})
            self.assertEqual(names["to"][0]["podSelector"]["matchLabels"], {"k8s-app": "kube-dns"})
            self.assertEqual([port["port"] for port in egret["ports"]], [8000])
            # The selector finds Egret's pods and no blocks of addresses are allowed.
            self.assertEqual(len(egret["to"]), 1)
            self.assertLessEqual(egret["to"][0]["podSelector"]["matchLabels"].items(), pods.items())
            self.assertNotIn("ipBlock", json.dumps(policy))

    def test_clients_prove_their_names_by_the_keys_of_one_secret(self):
        found = objects(render("full"))
        (listener,) = yaml.safe_load(found["ConfigMap", "egret"]["data"]["egret.yaml"])["gateway"]["listen"]
        tokens = {name: f"${{file:/etc/egret-clients/{name}}}" for name in ("checkout", "reports")}
        self.assertEqual(listener, {"address": "0.0.0.0:8000", "clients": {"tokens": tokens}})
        pod = found["Deployment", "egret"]["spec"]["template"]["spec"]
        (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "clients"]
        self.assertEqual(volume["secret"], {"secretName": "egret-clients", "defaultMode": 0o440})
        for wrong in ("clients.existingSecret=a", "clients.names[0]=a", "clients.existingSecret=a,clients.names[0]=a b"):
            self.assertEqual(run(*TEMPLATE, "--set", wrong, check=False).returncode, 1, wrong)

    def test_egret_itself_cannot_reach_private_networks(self):
        policy = objects(render("plain"))["NetworkPolicy", "egret"]["spec"]
        blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule["to"] if "ipBlock" in to]
        private = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"}
        self.assertEqual([set(block["except"]) for block in blocks], [private])
        self.assertEqual(set(policy["policyTypes"]), {"Ingress", "Egress"})

    def test_the_pods_have_no_privileges_and_drain_in_time(self):
        pods = [objects(render(case))["Deployment", "egret"]["spec"]["template"]["spec"] for case in CASES]
        for pod in pods:
            container = pod["containers"][0]
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
            self.assertGreater(pod["terminationGracePeriodSeconds"], 30)
            # A change of the config would never arrive in a mount with subPath.
            self.assertNotIn("subPath", json.dumps(container["volumeMounts"]))

    def test_the_sidecar_comes_first_and_outlives_the_application(self):
        pod = objects((PACKAGING / "manifests" / "sidecar.yaml").read_text())["Pod", "shop"]["spec"]
        sidecar = pod["initContainers"][0]
        self.assertEqual((sidecar["name"], sidecar["restartPolicy"]), ("egret", "Always"))
        self.assertEqual(sidecar["startupProbe"]["httpGet"]["path"], "/readyz")
        self.assertGreater(pod["terminationGracePeriodSeconds"], 40)


class Compose(Scratch):
    def test_the_application_has_no_way_out_but_egret(self):
        compose = yaml.safe_load((PACKAGING / "compose" / "compose.yaml").read_text())
        internal = {name for name, network in compose["networks"].items() if (network or {}).get("internal")}
        self.assertEqual(compose["services"]["application"]["networks"], ["applications"])
        self.assertIn("applications", internal)
        self.assertIn("outside", compose["services"]["egret"]["networks"])
        for mount in (mount for service in compose["services"].values() for mount in service.get("volumes", [])):
            source = mount.split(":")[0]
            if source.startswith(".") and source != "./token":
                self.assertTrue((PACKAGING / "compose" / source).exists(), source)


class Workflows(Scratch):
    def test_actionlint_accepts_them(self):
        run(TOOLS / "actionlint", *sorted((ROOT / ".github" / "workflows").iterdir()))

    def test_every_action_is_pinned_and_every_step_is_make_or_a_key(self):
        for path in sorted((ROOT / ".github" / "workflows").iterdir()):
            workflow = yaml.safe_load(path.read_text())
            self.assertEqual(workflow["permissions"], {"contents": "read"}, path.name)
            for job in workflow["jobs"].values():
                for step in job["steps"]:
                    if "uses" in step:
                        self.assertRegex(step["uses"], r"@[0-9a-f]{40}$")
