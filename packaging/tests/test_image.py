"""The image: accepted by skopeo, and run by runc with a read-only root, without root and without capabilities."""

import json
import os
import subprocess
import tarfile

from support import Scratch, package, run, until

SIZE_MAX = 16 << 20


class Image(Scratch):
    def layout(self):
        folder = self.folder / "layout"
        folder.mkdir()
        run("tar", "-xf", package("egret-*-oci-*.tar"), "-C", folder)
        return folder

    def test_it_is_at_most_16_mib(self):
        self.assertLessEqual(package("egret-*-oci-*.tar").stat().st_size, SIZE_MAX)

    def test_skopeo_reads_it_and_makes_an_archive_for_docker(self):
        archive = package("egret-*-oci-*.tar")
        inspected = json.loads(run("skopeo", "inspect", f"oci-archive:{archive}").stdout)
        self.assertEqual(inspected["Os"], "linux")
        self.assertEqual(len(inspected["Layers"]), 1)
        self.assertIn("org.opencontainers.image.version", inspected["Labels"])
        run("skopeo", "copy", f"oci-archive:{archive}", f"docker-archive:{self.folder}/docker.tar:egret:latest")

    def bundle(self):
        """Unpacks the only layer as a root, with a config for runc."""
        layout = self.layout()
        manifest = self.blob(layout, json.loads((layout / "index.json").read_text())["manifests"][0])
        manifest = json.loads(manifest.read_text())
        config = json.loads(self.blob(layout, manifest["config"]).read_text())
        root = self.folder / "bundle" / "rootfs"
        root.mkdir(parents=True)
        with tarfile.open(self.blob(layout, manifest["layers"][0])) as layer:
            layer.extractall(root, filter="fully_trusted")
        os.chown(root / "var/lib/egret", 65532, 65532)
        (root / "proc").mkdir()
        (root / "dev").mkdir()
        return root.parent, config["config"]

    @staticmethod
    def blob(layout, description):
        return layout / "blobs" / description["digest"].replace(":", "/")

    def test_runc_runs_it_read_only_as_65532_without_capabilities(self):
        bundle, config = self.bundle()
        self.assertEqual(config["User"], "65532:65532")
        write_spec(bundle, [*config["Entrypoint"], *config["Cmd"]])
        name = f"egret-{os.getpid()}"
        log = open(self.folder / "log", "w+")  # noqa: SIM115 (closed with the test)
        self.addCleanup(log.close)
        state = self.folder / "state"
        container = subprocess.Popen(["runc", "--root", state, "run", "--bundle", bundle, name], stdout=log, stderr=log)
        self.addCleanup(run, "runc", "--root", state, "delete", "--force", name, check=False)
        health = ["runc", "--root", state, "exec", "--user", "65532:65532", name, *config["Healthcheck"]["Test"][1:]]

        def is_ready():
            if container.poll() is not None:
                log.seek(0)
                raise AssertionError(f"the container has ended: {log.read()}")
            return run(*health, check=False).returncode == 0

        until("the container is healthy", is_ready)
        elsewhere = [*health[: health.index("/usr/bin/egret") + 2], "--control", "127.0.0.1:1"]
        self.assertEqual(run(*elsewhere, check=False).returncode, 1)
        missing = run(*health[: health.index("/usr/bin/egret") + 1], "lab", "list", check=False)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("The deb, rpm, Python and npm packages have it", missing.stderr)
        run("runc", "--root", state, "kill", name, "TERM")
        self.assertEqual(container.wait(timeout=60), 0)
        log.seek(0)
        self.assertIn("drained", log.read())


def write_spec(bundle, command):
    """Writes a config for runc: a network of its own, a read-only root, no capabilities, no new privileges."""
    run("runc", "spec", "--bundle", bundle)
    path = bundle / "config.json"
    spec = json.loads(path.read_text())
    spec["root"]["readonly"] = True
    process = spec["process"]
    process.update(terminal=False, args=command, user={"uid": 65532, "gid": 65532}, noNewPrivileges=True, cwd="/")
    process["capabilities"] = {kind: [] for kind in process["capabilities"]}
    path.write_text(json.dumps(spec))

