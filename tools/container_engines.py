"""What builds and runs the images: Docker, podman, or buildah where there is neither.

Docker and podman are asked in the same words. The stand-in needs root on Debian and the packages
``buildah`` and ``debootstrap``: it makes a base like ``python:slim`` from the caller's apt sources,
builds with the caller's pip configuration, mounted and not copied, and runs an image under
``unshare`` and ``chroot`` with its root bound read-only.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import psutil

__all__ = ["Engine", "Running", "find_engine", "said_by"]

ROOT = Path(__file__).resolve().parents[1]
USER = 1000
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt")
"""What ``python:slim`` lacks as well."""

ISOLATED = """set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
root=$1; folder=$2; shift 2
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  shift 2
done
shift
mount -o remount,ro,bind "$root"
exec chroot --userspec=USER:USER "$root" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""
"""Root, folder to work in, pairs of what is mounted where, ``--``, and the command."""


@dataclass
class Running:
    """A container that runs; ``name`` is what its engine calls it."""

    name: str
    process: subprocess.Popen[bytes] | None = None


class Engine(Protocol):
    """Builds images, and runs them with a read-only root."""

    name: str

    def build(self, target: str, tag: str, torch_index: str) -> None:
        """Build a target of the Dockerfile."""

    def size(self, tag: str) -> int:
        """Return the bytes of an image."""

    def volume(self) -> str:
        """Make an empty volume that the image's user can write."""

    def start(self, tag: str, volume: str, port: int) -> Running:
        """Serve on a port of this machine, with the volume as the only place to write."""

    def kill(self, running: Running) -> None:
        """End a container at once, without asking it."""

    def once(self, tag: str, mounts: Mapping[str, str], command: Sequence[str]) -> tuple[int, str]:
        """Run one command in a new container; return its exit code and what it said."""

    def commands(self, running: Running) -> list[str]:
        """Return the command lines of the processes in a container."""

    def clean(self) -> None:
        """Remove the volumes; images stay."""


def said_by(*command: str) -> str:
    """Run a command that must succeed, from the project's folder; return what it prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(f"{done.stdout}\n{done.stderr}".strip().splitlines()[-20:])
        sys.exit(f"{' '.join(command[:4])} ... failed with exit code {done.returncode}:\n{tail}")
    return done.stdout.strip()


@dataclass
class Docker:
    """Docker, or podman, which understands the same words."""

    name: str
    volumes: list[str] = field(default_factory=list)

    def build(self, target: str, tag: str, torch_index: str) -> None:
        """Build a target of the Dockerfile."""
        said_by(
            self.name, "build", "--target", target, "--tag", tag,
            "--build-arg", f"TORCH_INDEX_URL={torch_index}", ".",
        )  # fmt: skip

    def size(self, tag: str) -> int:
        """Return the bytes of an image."""
        return int(said_by(self.name, "image", "inspect", "--format", "{{.Size}}", tag))

    def volume(self) -> str:
        """Make an empty volume, which takes its owner from the image when it is first mounted."""
        self.volumes.append(said_by(self.name, "volume", "create", f"poskernel-{uuid.uuid4().hex}"))
        return self.volumes[-1]

    def start(self, tag: str, volume: str, port: int) -> Running:
        """Serve on a port of this machine."""
        return Running(
            said_by(
                self.name,
                "run",
                "--detach",
                "--read-only",
                "--publish",
                f"127.0.0.1:{port}:8501",
                "--volume",
                f"{volume}:/var/cache/poskernel",
                tag,
            )
        )

    def kill(self, running: Running) -> None:
        """End a container at once."""
        said_by(self.name, "rm", "--force", running.name)

    def once(self, tag: str, mounts: Mapping[str, str], command: Sequence[str]) -> tuple[int, str]:
        """Run one command in a new container."""
        volumes = [f"--volume={source}:{place}" for source, place in mounts.items()]
        done = subprocess.run(
            [self.name, "run", "--rm", "--read-only", *volumes, tag, *command],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def commands(self, running: Running) -> list[str]:
        """Return the command lines of the processes in a container."""
        return said_by(self.name, "top", running.name, "-eo", "pid,args").splitlines()[1:]

    def clean(self) -> None:
        """Remove the volumes."""
        for volume in self.volumes:
            said_by(self.name, "volume", "rm", volume)


class StandIn:
    """buildah and debootstrap, for machines without a daemon or a registry."""

    name = "buildah"

    def __init__(self) -> None:
        self._folder = ROOT / "build" / "container"
        self._folder.mkdir(parents=True, exist_ok=True)
        storage = [f"--root={self._folder}/images", f"--runroot={self._folder}/run"]
        self._buildah = ("buildah", "--storage-driver=overlay", *storage)
        self._roots: dict[str, tuple[str, str]] = {}
        self._volumes: list[str] = []

    def build(self, target: str, tag: str, torch_index: str) -> None:
        """Build a target of the Dockerfile on the base made here."""
        configuration, places = _pip_configuration()
        settings = self._folder / "pip.conf"
        settings.write_text(configuration)
        mounts = {str(settings): "/etc/pip.conf", **{place: place for place in places}}
        said_by(
            *self._buildah, "bud", "--isolation=chroot", "--network=host", "--layers",
            "--from", self._base(), "--target", target, "--tag", tag,
            "--build-arg", f"TORCH_INDEX_URL={torch_index}",
            *(f"--volume={source}:{place}:ro" for source, place in mounts.items()), ".",
        )  # fmt: skip

    def _base(self) -> str:
        tag = "localhost/poskernel-base"
        if tag in said_by(*self._buildah, "images", "--format", "{{.Name}}").split():
            return tag
        release, mirror = _debian()
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            root = Path(folder)
            root.chmod(0o755)
            options = ("--variant=minbase", f"--include={PACKAGES}")
            said_by("debootstrap", *options, release, folder, mirror)
            for each in LEFT_OUT:
                shutil.rmtree(root / each, ignore_errors=True)
            (root / "usr/bin/python").symlink_to("python3")
            for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
                marker.unlink()
            made = said_by(*self._buildah, "from", "scratch")
            said_by(*self._buildah, "add", "--quiet", made, folder, "/")
            said_by(*self._buildah, "commit", "--quiet", "--rm", made, tag)
        return tag

    def size(self, tag: str) -> int:
        """Return the bytes of the files of an image's layers."""
        written = said_by(*self._buildah, "images", "--json", tag)
        number, unit = json.loads(written)[0]["size"].split()
        return int(float(number) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit])

    def volume(self) -> str:
        """Make an empty folder that the image's user can write."""
        folder = tempfile.mkdtemp(prefix="poskernel-volume-")
        os.chown(folder, USER, USER)
        self._volumes.append(folder)
        return folder

    def start(self, tag: str, volume: str, port: int) -> Running:
        """Serve on a port of this machine, whose network the container shares."""
        about = json.loads(said_by(*self._buildah, "inspect", "--type=image", tag))
        command = about["OCIv1"]["config"]["Cmd"]
        mounts = {volume: "/var/cache/poskernel"}
        command = [*command, f"--server.port={port}"]
        return Running(tag, self._run(tag, mounts, command, subprocess.DEVNULL))

    def _run(
        self, tag: str, mounts: Mapping[str, str], command: Sequence[str], output: int
    ) -> subprocess.Popen[bytes]:
        if tag not in self._roots:
            made = said_by(*self._buildah, "from", "--pull-never", tag)
            self._roots[tag] = made, said_by(*self._buildah, "mount", made)
        root = self._roots[tag][1]
        for place in mounts.values():
            Path(root + place).mkdir(parents=True, exist_ok=True)
        about = json.loads(said_by(*self._buildah, "inspect", "--type=image", tag))
        config = about["OCIv1"]["config"]
        pairs = [part for pair in mounts.items() for part in pair]
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c",
             ISOLATED.replace("USER", str(USER)), "sh", root, config["WorkingDir"], *pairs, "--",
             *command],
            env=dict(each.split("=", 1) for each in config["Env"]) | {"HOME": "/home/poskernel"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def kill(self, running: Running) -> None:
        """End the first process of a container at once, and with it all others."""
        assert running.process is not None
        for first in psutil.Process(running.process.pid).children():
            first.kill()
        running.process.wait()

    def once(self, tag: str, mounts: Mapping[str, str], command: Sequence[str]) -> tuple[int, str]:
        """Run one command in a new container."""
        process = self._run(tag, mounts, command, subprocess.PIPE)
        said, _ = process.communicate()
        return process.returncode, said.decode()

    def commands(self, running: Running) -> list[str]:
        """Return the command lines of the processes in a container."""
        assert running.process is not None
        children = psutil.Process(running.process.pid).children(recursive=True)
        return [" ".join(each.cmdline()) for each in children]

    def clean(self) -> None:
        """Remove the volumes and the containers."""
        for made, _ in self._roots.values():
            said_by(*self._buildah, "rm", made)
        for folder in self._volumes:
            shutil.rmtree(folder)


def _debian() -> tuple[str, str]:
    """Return this machine's release of Debian, and where its apt has it from."""
    release = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    form = "$(CODENAME) $(ORIGIN) $(COMPONENT) $(REPO_URI)"
    for line in said_by("apt-get", "indextargets", "--format", form).splitlines():
        codename, origin, component, address = line.split(maxsplit=3)
        if release and (release[1], "Debian", "main") == (codename, origin, component):
            return codename, address
    sys.exit("Expected Debian with its own package sources; run this where Docker or podman is.")


def _pip_configuration() -> tuple[str, list[str]]:
    """Return the caller's pip configuration as a file, and the places on the disk it names."""
    options, places = {}, []
    for line in said_by(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        options[name.removeprefix("global.").removeprefix(":env:.")] = ast.literal_eval(value)
    for word in " ".join(options.values()).split():
        path = Path(unquote(urlsplit(word).path) if word.startswith("file:") else word)
        if path.is_absolute() and path.exists():
            places.append(str(path))
    # An index on the disk names its files relative to itself, as ../../files/NAME.
    whole = [str(Path(each).parent) if Path(each).name == "simple" else each for each in places]
    lines = (f"{name} = {value}" for name, value in options.items() if "." not in name)
    return "\n".join(["[global]", *lines, ""]), sorted(set(whole))


def find_engine() -> Engine:
    """Return Docker or podman where one answers, else the stand-in; exit where there is nothing."""
    for name in ("docker", "podman"):
        if shutil.which(name):
            asked = subprocess.run([name, "info"], capture_output=True, check=False)
            if asked.returncode == 0:
                return Docker(name)
    if os.geteuid() == 0 and all(map(shutil.which, ("buildah", "debootstrap", "unshare"))):
        return StandIn()
    sys.exit(
        "Expected Docker or podman, running; or root on Debian with buildah and debootstrap "
        "(apt-get install buildah debootstrap): install one of them."
    )
