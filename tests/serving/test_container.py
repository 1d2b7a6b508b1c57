"""The images and what stands around them, without building them: `make container` does that."""

import ipaddress
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from poskernel_core.common.settings import PUBLIC, variable
from serving.health import HEALTH
from tests.support.server import ROOT, environment
from tools.recorded import page_names

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
DEPLOYED = sorted((ROOT / "deploy").glob("*.yaml"))
NAMES = {file.name for file in (ROOT / "deploy").iterdir()}
STAGES = re.findall(r"^FROM (\S+) AS (\S+)", DOCKERFILE, re.MULTILINE)
WHOLE, PART = "requirements.txt", "requirements-serving.txt"
REFUSED = "This server shows what was computed before and computes nothing itself"
WITHOUT = """
import json, sys
missing, opened = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(missing))  # an import of these fails
from importlib.util import find_spec
assert not any(map(find_spec, missing))
from streamlit.testing.v1 import AppTest
from pages.shared.jobs import results
from tools.recorded import figures_on, open_page
told = []
for name, chosen in opened:
    app = AppTest.from_file("app.py", default_timeout=300)
    for each, value in chosen.items():
        app.query_params[each] = value
    open_page(app, name)
    told.append({
        "alarms": [each.value for each in [*app.exception, *app.error]],
        "infos": [each.value for each in app.info],
        "charts": len(figures_on(app)),
    })
print(json.dumps([told, results.engine().worker_pid]))
"""


def requirements(name):
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith(("#", "-"))}


def plain(name):
    """The name of a package as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def not_served():
    """The modules of the packages that the image without torch leaves out."""
    left = {plain(line.partition("==")[0]) for line in requirements(WHOLE) - requirements(PART)}
    known = packages_distributions()
    return sorted(name for name, packages in known.items() if left & {*map(plain, packages)})


def test_requirements_of_the_serving_image():
    assert requirements(PART) < requirements(WHOLE)
    heavy = {"torch", "transformers", "transformer_lens", "datasets", "scipy"}
    assert heavy <= {*not_served()}


def test_images_are_made_of_what_is_there():
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    let_in = [line[1:] for line in lines if line.startswith("!")]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in re.sub(r"\[(.)\]", r"\1", line).split()[:-1]  # what may be missing
    ]

    assert {*let_in} == {source.removeprefix("./") for source in copied}
    made = {"build/site"}
    assert [] == [each for each in copied if each not in made and not (ROOT / each).exists()]
    known = [name for _, name in STAGES]
    for number, (base, _) in enumerate(STAGES):
        assert base in known[:number] or ":" in base
    assert {*re.findall(r"--from=(\S+)", DOCKERFILE)} <= {*known}
    assert ["serving", "all"] == known[-2:]  # the last one is built where none is named


def test_the_image_copies_all_that_the_app_imports():
    served = [ROOT / "serve.py", ROOT / "app.py"]
    served += [file for each in ("pages", "serving") for file in (ROOT / each).rglob("*.py")]
    own = {each.stem for each in ROOT.iterdir() if each.suffix == ".py" or each.is_dir()}
    named = {
        name
        for file in served
        for name in re.findall(r"^\s*(?:from|import) (\w+)", file.read_text("utf-8"), re.MULTILINE)
    }

    copied = " ".join(re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE))
    assert [] == [name for name in named & own if not re.search(rf"\b{name}\b", copied)]


def test_compose_file():
    """Both are locked up; settings about visitors are passed on, and the proxy is believed.

    The health that is asked for is the one that looks at the store, as in the image.
    """
    dashboard, proxy = (COMPOSE["services"][name] for name in ("dashboard", "proxy"))
    for service in (dashboard, proxy):
        assert service["read_only"]
        assert ["ALL"] == service["cap_drop"]
        assert "CMD" == service["healthcheck"]["test"][0]
    assert re.fullmatch(r"\$\{POSKERNEL_TARGET:-(\w+)\}", dashboard["build"]["target"])[1] == "all"
    (volume,) = dashboard["volumes"]
    name, _, place = volume.partition(":")
    assert name in COMPOSE["volumes"]
    assert re.search(r"POSKERNEL_CACHE=(\S+)", DOCKERFILE)[1] == place
    assert "ports" not in dashboard  # so that it can be scaled
    mounted = [each.partition(":")[0] for each in proxy["volumes"]]
    assert all((ROOT / each).is_file() for each in mounted if each.startswith("."))
    assert "service_healthy" == proxy["depends_on"]["dashboard"]["condition"]

    told = dashboard["environment"]
    assert [] == [name for name in map(variable, PUBLIC) if f"${{{name}:-}}" != told[name]]
    trusted = re.fullmatch(r"\$\{FORWARDED_ALLOW_IPS:-(.*)\}", told["FORWARDED_ALLOW_IPS"])[1]
    networks = [ipaddress.ip_network(each) for each in trusted.split(",")]
    assert all(each.is_private for each in networks)
    docker = ipaddress.ip_address("172.18.0.3")
    assert any(docker in each for each in networks if each.version == 4)
    asked = dashboard["healthcheck"]["test"][-1]
    assert re.search(r"HEALTHCHECK.*?\n.*?(urlopen\(.*?\))", DOCKERFILE)[1] in asked
    assert f":8501{HEALTH}'" in asked


@pytest.mark.parametrize("file", DEPLOYED, ids=lambda file: file.name)
def test_what_is_laid_over_compose(file):
    added = yaml.safe_load(file.read_text("utf-8"))["services"]
    whole = {service for service, told in added.items() if "image" in told}

    assert {*added} - whole <= {*COMPOSE["services"]}
    for told in (added[each] for each in whole):
        assert told["read_only"]
        assert ["ALL"] == told["cap_drop"]
    mounted = [each.split(":") for each in added.get("proxy", {}).get("volumes", [])]
    own = {"users"}  # what the host writes
    assert [] == [at for at, *_ in mounted if Path(at).name not in own | NAMES]
    assert {"/etc/caddy/Caddyfile"} <= {place for _, place, _ in mounted} or not mounted
    named = set(re.findall(r"-f (\S+\.yaml)", file.read_text("utf-8")))
    assert {"compose.yaml", f"deploy/{file.name}"} <= named
    assert [] == [each for each in named if not (ROOT / each).is_file()]


def test_trimming(tmp_path):
    packages = tmp_path / "lib/python3.11/site-packages"
    for name in ("scipy/linalg/tests/a.py", "torch/include/b.h", "torch/c.py", "mine/tests/d.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(b"12345")

    subprocess.run(["sh", ROOT / "tools/trim_packages.sh", tmp_path], check=True)
    left = {str(each.relative_to(packages)) for each in packages.rglob("*") if each.is_file()}
    assert {"torch/c.py", "mine/tests/d.py"} == left


@pytest.mark.slow
def test_every_page_of_the_serving_image(tmp_path):
    """Without the packages it lacks: what comes with the project is drawn, new work refused."""
    first = ("etc_heatmap", "head")  # of the first model, whose weights are elsewhere
    opened = [(name, {} if name in first else {"model": "demo-gpt2"}) for name in page_names()]
    opened.append(("etc_heatmap", {"model": "demo-gpt2", "windows": "50", "context": "64"}))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(not_served()), json.dumps(opened)],
        cwd=ROOT, env=environment(tmp_path, shipped=True), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    told, worker = json.loads(done.stdout.splitlines()[-1])

    assert worker is None
    assert [[]] * len(opened) == [each["alarms"] for each in told]
    *ready, refused = told
    assert sum(each["charts"] for each in ready) > 20
    assert any(REFUSED in each for each in refused["infos"])
    assert 0 == refused["charts"]
