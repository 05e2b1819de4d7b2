# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folders of examples/: what a site copies runs, and what AWX gets fits its modules and our playbooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import controller
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site import Inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import OF_OWNER

from .commands import ansible, environment
from .conftest import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))
from make_venv import CACHE, pip

EXAMPLES = CHECKOUT / "examples"
PATTERN = CHECKOUT / "extensions" / "patterns" / "nvlink_slurm"
BIN = Path(sys.executable).parent
RACKS: dict[str, Any] = {"racks": 2, "trays_per_rack": 18, "gpus_per_tray": 4, "seed": 1}
# The last release of the community package that has awx.awx.
AWX_WHEEL = "ansible==11.13.0"
AWX_SHA256 = ("7f1c9c6a6026ff214d9240647e4d2b019b2a9d4c7a2bc733932bcf92af80ab04",)
# In place of awx.awx's client: the module's own argument spec, then what the module was given.
AWX_CLIENT = """
import json, os
from ansible.module_utils.basic import AnsibleModule
class ControllerAPIModule(AnsibleModule):
    def __init__(self, argument_spec, **kwargs):
        super().__init__(argument_spec=argument_spec, **kwargs)
        with open(os.environ["ASKED"], "a") as asked:
            asked.write(json.dumps([self._name, self.params]) + "\\n")
        self.exit_json()
"""


def sources(**racks: Any) -> str:
    """The option that lets discover read simulated racks."""
    return json.dumps({"fabric_sources": [{"simulation": {**RACKS, **racks}}]})


def required(file: str) -> list[str]:
    """The lines of a list of packages."""
    return [line for line in (CHECKOUT / file).read_text().splitlines() if not line.startswith("#")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the site, all that its .gitignore lets in under version control."""
    folder = Path(shutil.copytree(EXAMPLES / "site", tmp_path / "site"))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    return folder


def in_site(site: Path, *command: str | Path, **more: str) -> str:
    """What a command printed that was typed in the site's folder, with its ansible.cfg."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    settings = environment(**{"PATH": path, "ANSIBLE_CONFIG": str(site / "ansible.cfg"), **more})
    words = list(map(str, command))
    done = subprocess.run(words, cwd=site, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_inventory_of_the_site_has_every_tray_in_a_clique(site: Path) -> None:
    listed = json.loads(in_site(site, "ansible-inventory", "--list"))
    cliques = {name: rows["hosts"] for name, rows in listed.items() if name.startswith("nvlink_clique_")}
    assert {name: len(trays) for name, trays in cliques.items()} == {"nvlink_clique_r01": 18, "nvlink_clique_r02": 18}
    assert sorted(tray for trays in cliques.values() for tray in trays) == sorted(listed["trays"]["hosts"])


def test_doctor_has_nothing_to_say_of_the_ansible_cfg(site: Path) -> None:
    rows = json.loads(in_site(site, "ansible-config", "dump", "--format", "json"))
    options = {row["name"]: row["value"] for row in rows if "name" in row}
    unset = [name for name in controller.CONFIG if not options[name]]
    here = controller.Controller(unset=unset, forks=options["DEFAULT_FORKS"], processors=4)
    trays = dict.fromkeys(json.loads((site / "fabric.json").read_text())["trays"], "")
    found = controller.checks(here, Inventory(trays, [], {}))
    assert [row["severity"] for row in found if row["code"] == "ansible_cfg"] == ["ok"]


def test_a_playbook_of_the_project_is_one_of_the_collection(site: Path) -> None:
    files = sorted((site / "playbooks").iterdir())
    plays = [yaml.safe_load(file.read_text())[0]["import_playbook"] for file in files]
    assert plays == [f"rackscale.nvlink.{file.stem}" for file in files]
    in_site(site, "ansible-playbook", "--syntax-check", *files)


@pytest.fixture
def steps(site: Path) -> list[str]:
    """What the workflow of pull requests types, in its order."""
    workflow = yaml.safe_load((site / ".github" / "workflows" / "proposal.yml").read_text())
    return [step["run"] for step in workflow["jobs"]["map"]["steps"] if "run" in step]


def test_the_committed_tree_is_what_the_example_renders(site: Path, steps: list[str]) -> None:
    """By git diff in the step of the workflow. Anew: both commands of the README, in examples/site."""
    commands = re.findall(r"^    (ansible-.* -e render_dir=.*|ansible-.* > .*)", (site / "README.md").read_text(), re.M)
    assert [line.strip() for line in steps[-1].replace('"', "").splitlines()[:2]] == commands
    in_site(site, "bash", "-ec", steps[-1])
    rows = re.findall(r"^\| .* \| (`.*) \| \[.*?\]\((config/.*?)\)", (site / "README.md").read_text(), re.M)
    assert len(rows) == 6
    for shown, file in rows:
        assert [part for part in re.findall("`(.*?)`", shown) if part not in (site / file).read_text()] == []
    fabric = (site / "fabric.json").read_text()
    (site / "fabric.json").write_text(fabric.replace('"imex_address": "10.0.1.1"', '"imex_address": "10.0.1.99"'))
    with pytest.raises(AssertionError, match=r"-10\.0\.1\.1\n *\+10\.0\.1\.99\n(.*\n)*? *Commit config/ as"):
        in_site(site, "bash", "-ec", steps[-1])


def test_a_pull_request_shows_the_racks_that_its_proposal_changes(site: Path, steps: list[str]) -> None:
    install, draw, _compare = steps
    # The libraries of requirements.txt.
    named = {re.split("[>=]", line)[0] for line in required("requirements.txt")}
    assert named <= set(install.split())
    summary = site / "summary.md"
    in_site(site, "ansible-playbook", "rackscale.nvlink.discover", "-e", sources(split={"2": 2}))
    for shown, hidden in (("r02t01  r02 -> r02a", "r01t01"), ("r01t01  r01", "->")):
        in_site(site, "bash", "-ec", draw, GITHUB_STEP_SUMMARY=str(summary))
        text = summary.read_text()
        assert shown in text
        assert hidden not in text
        summary.unlink()
        (site / "fabric.proposed.json").unlink(missing_ok=True)
        # It would name the trays that are observed elsewhere.
        (site / "fabric.state.json").unlink(missing_ok=True)


def test_ansible_builder_accepts_the_execution_environment(site: Path, tmp_path: Path) -> None:
    in_site(site, "ansible-galaxy", "collection", "build", CHECKOUT, "--output-path", tmp_path)
    (artifact,) = tmp_path.glob("rackscale-nvlink-*.tar.gz")
    artifact.rename(site / "rackscale-nvlink.tar.gz")
    in_site(site, "ansible-builder", "create", "--context", tmp_path / "context")
    (wanted,) = yaml.safe_load((tmp_path / "context/_build/requirements.yml").read_text())["collections"]
    assert (tmp_path / "context" / "_build" / wanted["name"]).is_file()
    # What the image's build finds in the installed collection.
    installed = tmp_path / "installed"
    install = ("collection", "install", "--force", "rackscale-nvlink.tar.gz", "-p", installed)
    in_site(site, "ansible-galaxy", *install, ANSIBLE_COLLECTIONS_PATH=str(installed))
    found = in_site(site, "ansible-builder", "introspect", installed)
    for line in (*required("requirements.txt"), *required("bindep.txt")):
        assert line.split(" ")[0].lower() in found.lower()


def test_ansible_navigator_accepts_its_settings(site: Path) -> None:
    assert "site-nvlink:latest" in in_site(
        site, "ansible-navigator", "settings", "--effective", "--mode", "stdout", "--ee", "false"
    )


@pytest.mark.lab
def test_ansible_runner_runs_site_with_a_read_only_project(site: Path, tmp_path: Path) -> None:
    private, state = tmp_path / "private", tmp_path / "state"
    (private / "env").mkdir(parents=True)
    state.mkdir()
    variables = {"fabric_state_dir": str(state), "site_accept": "review", "render_dir": str(state / "rendered")}
    (private / "env" / "extravars").write_text(json.dumps({**variables, **json.loads(sources(split={"2": 2}))}))
    site.rename(private / "project")
    # Root ignores modes, so the project is a read-only mount in a namespace of its own.
    mounts = 'mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
    run = 'ansible-runner run "$2" -p rackscale.nvlink.site --cmdline "--tags discover,report"'
    inside = f"{mounts} && ! touch $1/x 2>/dev/null && {run}"
    in_site(
        private, "unshare", "--mount", "bash", "-c", inside, "site", private / "project", private, ANSIBLE_CONFIG=""
    )
    assert (state / "fabric.proposed.md").exists()
    assert (state / "rendered" / "report" / "index.html").exists()


def job_templates() -> list[dict[str, Any]]:
    definition = json.loads((PATTERN / "meta" / "pattern.json").read_text())
    templates: list[dict[str, Any]] = definition["aap_resources"]["controller_job_templates"]
    return templates


def test_the_job_templates_name_playbooks_and_their_variables() -> None:
    for template in job_templates():
        name = template["playbook"].removesuffix(".yml")
        for folder in (PATTERN, EXAMPLES / "site"):
            (play,) = yaml.safe_load((folder / "playbooks" / f"{name}.yml").read_text())
            assert play["import_playbook"] == f"rackscale.nvlink.{name}"
        asked = {row["variable"]: row["required"] for row in template["survey"]["spec"]}
        assert asked.keys() <= OF_OWNER[f"playbooks/{name}"].keys()
        described = yaml.safe_load((PATTERN / "playbooks" / f"{name}.meta.yml").read_text())
        options = described["argument_specs"][name]["options"]
        assert asked == {variable: option["required"] for variable, option in options.items()}


def test_the_pattern_is_what_the_platform_reads() -> None:
    definition = json.loads((PATTERN / "meta" / "pattern.json").read_text())
    resources = definition["aap_resources"]
    assert definition["name"] == PATTERN.name
    assert len(definition["title"]) <= 64
    assert [template["name"] for template in job_templates() if template.get("primary")] == ["NVLink discover"]
    for template in job_templates():
        assert template["execution_environment"] == resources["controller_execution_environment"]["name"]
        assert template["labels"] == resources["controller_labels"]
        for row in template["survey"]["spec"]:
            # Its schema has text alone as a default, the controller takes a number for a number.
            assert row["type"] == "text" or "default" not in row


def test_the_jobs_of_the_workflow_run_with_what_each_passes_on(site: Path) -> None:
    """discover for each group of racks, then accept with the last job's SHA-256."""
    (play,) = yaml.safe_load((EXAMPLES / "awx" / "controller.yml").read_text())
    (site / "fabric.json").unlink()
    passed: dict[str, Any] = {}
    inventory = ("-i", "hosts.yml", "-e", sources(), "-e", f"fabric_file={site}/fabric.json")
    for limit in (play["vars"]["racks_a"], play["vars"]["racks_b"], None):
        playbook = "playbooks/discover.yml" if limit else "playbooks/accept.yml"
        more = ("-e", json.dumps(passed), *(("--limit", limit) if limit else ()))
        shown = in_site(
            site, "ansible-playbook", playbook, *inventory, *more,
            ANSIBLE_SHOW_CUSTOM_STATS="true", ANSIBLE_STDOUT_CALLBACK="default",
        )  # fmt: skip
        passed |= json.loads(found[1]) if (found := re.search(r"RUN: (\{.*\})", shown)) else {}
    assert len(json.loads((site / "fabric.json").read_text())["trays"]) == 36


def awx() -> Path:
    """awx.awx, unpacked once into the cache."""
    home = CACHE / AWX_WHEEL.replace("==", "-awx-")
    if not home.exists():
        scratch = CACHE / f"{home.name}.{os.getpid()}"
        scratch.mkdir(parents=True)
        pip(sys.executable, "download", str(scratch), "--dest", AWX_WHEEL, AWX_SHA256)
        (wheel,) = scratch.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(
                scratch, [name for name in archive.namelist() if name.startswith("ansible_collections/awx/")]
            )
        wheel.unlink()
        scratch.rename(home)
    return home


def specification(options: dict[str, Any]) -> dict[str, Any]:
    """The argument spec of documented options."""
    keys = ("type", "elements", "choices", "aliases", "required")
    return {
        name: {key: row[key] for key in keys if key in row}
        | ({"options": specification(row["suboptions"])} if "suboptions" in row else {})
        for name, row in options.items()
    }


@pytest.mark.long
def test_the_modules_of_awx_accept_every_argument(tmp_path: Path) -> None:
    collections = tmp_path / "collections"
    shutil.copytree(awx(), collections)
    (collections / "ansible_collections/awx/awx/plugins/module_utils/controller_api.py").write_text(AWX_CLIENT)
    asked = tmp_path / "asked"
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ASKED": str(asked)}
    ansible("ansible-playbook", EXAMPLES / "awx" / "controller.yml", **settings)
    given = [json.loads(line) for line in asked.read_text().splitlines()]
    documented = json.loads(ansible("ansible-doc", "--json", "awx.awx.workflow_job_template", **settings).stdout)
    options = documented["awx.awx.workflow_job_template"]["doc"]["options"]
    (nodes,) = (arguments["workflow_nodes"] for _name, arguments in given if arguments.get("workflow_nodes"))
    spec = specification({"nodes": options["workflow_nodes"]})
    assert ArgumentSpecValidator(spec).validate({"nodes": nodes}).error_messages == []
    # Every node is reached from the first, and what it starts is created above.
    steps = {node["identifier"]: node for node in nodes}
    order = [nodes[0]["identifier"]]
    while found := steps[order[-1]].get("related"):
        order += [row["identifier"] for row in found["success_nodes"]]
    assert order == ["discover_a", "discover_b", "approve", "accept", "slurm"] == list(steps)
    templates = {arguments["name"] for name, arguments in given if name.endswith("job_template")}
    started = {node["unified_job_template"]["name"] for node in nodes if node["identifier"] != "approve"}
    assert started <= templates
