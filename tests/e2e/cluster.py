"""A Holdfast process under test."""
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import boto3
from botocore.config import Config

REPO = pathlib.Path(__file__).resolve().parents[2]
HOLDFAST = os.environ.get("HOLDFAST", str(REPO / "target/release/holdfast"))
AWS = str(pathlib.Path(os.sys.executable).parent / "aws")


def run(*args, timeout=120, check=True, **kw):
    """Runs a command to its end, with its output captured."""
    r = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, **kw)
    if check and r.returncode != 0:
        raise AssertionError(f"{args} exited {r.returncode}\n{r.stdout[-3000:]}\n{r.stderr[-3000:]}")
    return r


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


class Cluster:
    def __init__(self, work, osds=6, code=None, dirs=None, mount=True, s3=True, options=(), env=None):
        self.work = str(work)
        self.dirs = [str(d) for d in (dirs or [os.path.join(self.work, "data")])]
        self.data = self.dirs[0]
        self.osds, self.code, self.options = osds, code, list(options)
        self.mnt = os.path.join(self.work, "mnt") if mount else None
        self.with_s3 = s3
        self.env = {**os.environ, **(env or {})}
        self.process = None
        self.lines = []
        self.endpoint = None

    def command(self):
        args = [HOLDFAST, "up", *self.dirs]
        if self.osds and len(self.dirs) == 1:
            args += ["--osds", str(self.osds)]
        if self.code:
            args += ["--code", self.code]
        if self.mnt:
            os.makedirs(self.mnt, exist_ok=True)
            args += ["--mount", self.mnt]
        if self.with_s3:
            args += ["--s3", "127.0.0.1:0"]
        return args + self.options

    def start(self, seconds=60):
        self.lines = []
        self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env)
        threading.Thread(target=self._pump, args=(self.process,), daemon=True).start()
        wait_for("the line ready", lambda: "ready" in self.lines or self.process.poll() is not None, seconds)
        assert "ready" in self.lines, "it ended before it was ready:\n" + "\n".join(self.lines)
        for line in self.lines:
            if line.startswith("s3: "):
                self.endpoint = line[4:]
        return self

    def _pump(self, process):
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self):
        return "\n".join(self.lines)

    def stop(self, seconds=90):
        """In order: SIGTERM, drained, unmounted, exit 0."""
        p = self.process
        if p is None:
            return
        p.send_signal(signal.SIGTERM)
        assert p.wait(seconds) == 0, f"exit {p.returncode}\n{self.output[-3000:]}"
        self.process = None
        if self.mnt:
            assert not os.path.ismount(self.mnt), "still mounted after exit"

    def kill(self):
        """kill -9, as a crash."""
        self.process.kill()
        self.process.wait(30)
        self.process = None
        if self.mnt:
            subprocess.run(["umount", "-l", self.mnt], capture_output=True)

    def destroy(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(30)
            self.process = None
        if self.mnt and os.path.ismount(self.mnt):
            subprocess.run(["umount", "-l", self.mnt], capture_output=True)

    def restart(self):
        self.stop()
        return self.start()

    # ---- asking it ----
    def status(self):
        return json.loads(run(HOLDFAST, "status", "--data", self.data, "--json").stdout)

    def metrics(self):
        """Every metric by its full name with labels."""
        out = {}
        for line in run(HOLDFAST, "admin", "metrics", "--data", self.data).stdout.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def drop_caches(self):
        run(HOLDFAST, "admin", "drop-caches", "--data", self.data)
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3\n")

    def sync(self):
        run(HOLDFAST, "admin", "sync", self.mnt)

    # ---- S3 ----
    @property
    def s3_env(self):
        return {**os.environ, "AWS_SHARED_CREDENTIALS_FILE": os.path.join(self.data, "credentials"), "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": self.keys[0], "AWS_SECRET_ACCESS_KEY": self.keys[1], "AWS_EC2_METADATA_DISABLED": "true"}

    @property
    def keys(self):
        text = open(os.path.join(self.data, "credentials")).read()
        value = lambda k: next(l.split("=", 1)[1].strip() for l in text.splitlines() if l.startswith(k))
        return value("aws_access_key_id"), value("aws_secret_access_key")

    def s3(self, **config):
        key, secret = self.keys
        c = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, read_timeout=60, connect_timeout=10, **config)
        return boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1", config=c)

    def aws(self, *args, **kw):
        return run(AWS, "--endpoint-url", self.endpoint, *args, env=self.s3_env, **kw)

    def path(self, *names):
        return os.path.join(self.mnt, *names)
