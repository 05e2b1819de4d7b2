# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

PYTHON ?= python3
VENV := .venv
RUN := $(abspath $(VENV))/bin
# This checkout, linked into the environment, comes before any copy that the user has installed elsewhere.
export ANSIBLE_COLLECTIONS_PATH = $(shell echo $(abspath $(VENV))/lib/python3*/site-packages)

RACKS ?= $(if $(FROM),,2)
SUITE ?= forky
LAB ?= lab

.DEFAULT_GOAL := help
.PHONY: help venv demo unit check test test-cold test-all soak fuzz bench reference screenshot docs release lab lab-down build clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

$(VENV)/.made: uv.lock pyproject.toml tests/tools/make_venv.py
	@$(PYTHON) tests/tools/make_venv.py
	@touch $@

venv: $(VENV)/.made ## Make ./.venv from uv.lock, with this checkout as the installed collection

demo: venv ## Two simulated NVL72 racks (RACKS=576: more), discovered twice, rendered to build/demo (no root, no GPU)
	@mkdir -p build && sed 's/^  racks: 2$$/  racks: $(RACKS)/' playbooks/files/demo.nvlink.yml > build/demo.nvlink.yml
	@PATH="$(RUN):$$PATH" ANSIBLE_STDOUT_CALLBACK=$${ANSIBLE_STDOUT_CALLBACK:-rackscale.nvlink.progress} \
	$(RUN)/ansible-playbook -i "$(CURDIR)/build/demo.nvlink.yml" rackscale.nvlink.demo -e demo_dir="$(CURDIR)/build/demo" && \
	echo "Demo complete: a tray is down and kept its place. Open build/demo/report/index.html"

unit: venv ## The unit tests
	@$(RUN)/python tests/tools/gates.py unit

check: venv ## Lint, types, documentation and the unit tests (no root)
	@$(RUN)/python tests/tools/gates.py check

test: venv ## `make check` without ansible-lint, and each capability once on virtual racks of real systemd, sshd, slurmctld (root)
	@$(RUN)/python tests/tools/gates.py test

test-cold: clean ## `make test` as on a new machine: without environments, caches and the lab's images
	@cold=$$(mktemp -d); HOME=$$cold XDG_CACHE_HOME=$$cold/cache $(MAKE) test; status=$$?; \
	chmod -R u+w $$cold; rm -rf $$cold; exit $$status

test-all: venv ## What `make test` leaves out: other releases, 36 trays, long stories, seeded faults (root)
	@$(RUN)/python tests/tools/gates.py all

soak: venv ## 200 rounds of random faults and repairs on 36 trays (root); SOAK='--imex-every 10' adds IMEX
	@$(RUN)/python tests/soak/live.py $(SOAK)

fuzz: venv ## Search new examples for all properties and readers (hours; EXAMPLES=N each, 100000 if unset); gates nothing
	@SEARCH=1 EXAMPLES=$${EXAMPLES:-100000} $(RUN)/python -m pytest -q -n auto -m hypothesis tests/fuzz tests/unit

bench: venv ## Measure at 10,368 trays and print the tables of docs/contributing/performance.md
	@$(RUN)/python tests/bench/run.py

reference: venv ## Write docs/reference.md, docs/findings.md and the tables of variables in roles/*/README.md
	@$(RUN)/python tests/tools/reference.py
	@$(RUN)/python tests/tools/findings_table.py

screenshot: demo ## Write docs/report.png, the report of make demo in Chromium (root)
	@$(RUN)/python tests/tools/screenshot.py

docs: venv ## Build the documentation's site into build/docs/html
	@PATH="$(RUN):$$PATH" $(RUN)/python tests/tools/docs_site.py

lab: venv ## Bring up a virtual lab to play in: make lab RACKS=2 SUITE=trixie LAB=mine, or FROM=a support bundle
	@$(RUN)/python tests/lab/lab up --name $(LAB) $(if $(FROM),--from "$(FROM)") $(if $(RACKS),--racks $(RACKS)) --suite $(SUITE)

lab-down: venv ## Remove that lab
	@$(RUN)/python tests/lab/lab down --name $(LAB)

build: venv ## Build the collection's artifact, and the list of the controller's libraries, into build/
	@$(RUN)/python tests/tools/release.py build

release: venv ## Build what a release publishes into build/release: artifact, checksums, bill of materials
	@$(RUN)/python tests/tools/release.py

clean: ## Remove what the other targets made
	rm -rf build .venv
