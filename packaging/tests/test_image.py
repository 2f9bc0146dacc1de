"""The image: accepted by skopeo, and run by runc with a read-only root, without root and without capabilities."""

import json
import os
import subprocess
import tarfile
import time

from support import DEBIAN_PROCESSOR, Scratch, package, run, until

PACKAGE = "egret-*-oci.tar"
# Of the layer of a processor.
SIZE_MAX = 16 << 20


class Image(Scratch):
    def layout(self):
        folder = self.folder / "layout"
        folder.mkdir()
        run("tar", "-xf", package(PACKAGE), "-C", folder)
        return folder

    def manifests(self, layout):
        """Returns the manifests by processor. The layout has an index of them, as all builders of images write it."""
        [named] = json.loads((layout / "index.json").read_text())["manifests"]
        listed = json.loads(self.blob(layout, named).read_text())["manifests"]
        return {each["platform"]["architecture"]: json.loads(self.blob(layout, each).read_text()) for each in listed}

    def test_it_is_at_most_16_mib_for_each_processor(self):
        manifests = self.manifests(self.layout())
        self.assertIn(DEBIAN_PROCESSOR, manifests)
        for manifest in manifests.values():
            self.assertLessEqual(sum(layer["size"] for layer in manifest["layers"]), SIZE_MAX)

    def test_skopeo_reads_the_image_of_each_processor(self):
        for processor in self.manifests(self.layout()):
            inspect = ["skopeo", "--override-arch", processor, "inspect", f"oci-archive:{package(PACKAGE)}"]
            self.assertEqual(json.loads(run(*inspect).stdout)["Architecture"], processor)

    def test_skopeo_reads_it_and_makes_an_archive_for_docker(self):
        archive = package(PACKAGE)
        inspected = json.loads(run("skopeo", "inspect", f"oci-archive:{archive}").stdout)
        self.assertEqual(inspected["Os"], "linux")
        self.assertEqual(len(inspected["Layers"]), 1)
        self.assertIn("org.opencontainers.image.version", inspected["Labels"])
        run("skopeo", "copy", f"oci-archive:{archive}", f"docker-archive:{self.folder}/docker.tar:egret:latest")

    def bundle(self):
        """Unpacks the only layer as a root, with a config for runc."""
        layout = self.layout()
        manifest = self.manifests(layout)[DEBIAN_PROCESSOR]
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
        container = Container(self, bundle, config)
        container.until_healthy()
        self.assertEqual(container.inside("health", "--control", "127.0.0.1:1").returncode, 1)
        missing = container.inside("lab", "list")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("The deb, rpm, Python and npm packages have it", missing.stderr)
        self.assertEqual(container.stop(), 0)
        self.assertIn("drained", container.log.read_text())

    def test_a_call_in_flight_ends_before_the_container_does(self):
        bundle, config = self.bundle()
        container = Container(self, bundle, config, self.own_config())
        container.until_healthy()
        container.beside(self.unpack() / "egret", "provider")
        curl = ["curl", "--silent", "--show-error", "--max-time", "60"]
        until("the provider answers", lambda: container.called(*curl, "http://127.0.0.1:9000/get").returncode == 0)
        begin = time.monotonic()
        client = container.beside(*curl, "http://127.0.0.1:8000/api/delay/5", stdout=subprocess.PIPE)
        until("the call is at the provider", lambda: self.is_called(container, curl))
        self.assertLess(time.monotonic() - begin, 5, "the call has ended before the signal")
        self.assertEqual(container.stop(), 0)
        self.assertGreater(time.monotonic() - begin, 5, "the container has not waited for the call")
        self.assertIn('"url"', client.communicate()[0].decode())
        self.assertEqual(client.returncode, 0)

    def own_config(self):
        """Returns a config to be mounted in place of the image's."""
        config = self.folder / "own.yaml"
        config.write_text("providers: { api: { url: 'http://127.0.0.1:9000' } }\ndata_dir: /var/lib/egret\n")
        config.chmod(0o644)
        return config

    @staticmethod
    def is_called(container, curl):
        metrics = container.called(*curl, "http://127.0.0.1:8001/metrics").stdout
        return 'egret_provider_connections{provider="api"} 1' in metrics


class Container:
    """A container that runc runs, with a network of its own."""

    def __init__(self, test, bundle, config, own_config=None):
        self.test, self.folder, self.name = test, test.folder, f"egret-{os.getpid()}"
        self.entry, self.health = config["Entrypoint"], config["Healthcheck"]["Test"][2:]
        self.runc = ["runc", "--root", self.folder / "state"]
        self.log = self.folder / "log"
        write_spec(bundle, [*config["Entrypoint"], *config["Cmd"]], own_config)
        with open(self.log, "w") as log:
            command = [*self.runc, "run", "--bundle", bundle, self.name]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        test.addCleanup(run, *self.runc, "delete", "--force", self.name, check=False)

    def inside(self, *arguments):
        """Runs a command of Egret in the container."""
        return run(*self.runc, "exec", "--user", "65532:65532", self.name, *self.entry, *arguments, check=False)

    def network(self):
        """Returns the start of a command that runs in the container's network."""
        state = json.loads(run(*self.runc, "state", self.name).stdout)
        return ["nsenter", f"--net=/proc/{state['pid']}/ns/net"]

    def beside(self, *command, **options):
        """Starts a program of this machine in the container's network."""
        program = subprocess.Popen([*self.network(), *command], **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options})
        self.test.addCleanup(program.wait)
        self.test.addCleanup(program.kill)
        return program

    def called(self, *command):
        """Runs a program of this machine in the container's network."""
        return run(*self.network(), *command, check=False)

    def until_healthy(self):
        """Waits until the image's own health check succeeds."""

        def is_healthy():
            if self.process.poll() is not None:
                raise AssertionError(f"the container has ended: {self.log.read_text()}")
            return self.inside(*self.health).returncode == 0

        until("the container is healthy", is_healthy)

    def stop(self):
        """Sends the image's stop signal, and returns the exit code."""
        run(*self.runc, "kill", self.name, "TERM")
        return self.process.wait(timeout=60)


def write_spec(bundle, command, config):
    """Writes a config for runc: a network of its own, a read-only root, no capabilities, no new privileges."""
    run("runc", "spec", "--bundle", bundle)
    path = bundle / "config.json"
    spec = json.loads(path.read_text())
    spec["root"]["readonly"] = True
    process = spec["process"]
    process.update(terminal=False, args=command, user={"uid": 65532, "gid": 65532}, noNewPrivileges=True, cwd="/")
    process["capabilities"] = {kind: [] for kind in process["capabilities"]}
    if config is not None:
        mount = {"destination": "/etc/egret/egret.yaml", "type": "bind", "source": str(config), "options": ["bind", "ro"]}
        spec["mounts"].append(mount)
    path.write_text(json.dumps(spec))

