# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option of the inventory's source rest."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.doc_fragments.source_http import CONNECTION


class ModuleDocFragment:
    # Annotated, because ansible-test takes a plain assignment for one literal.
    DOCUMENTATION: str = (
        r"""
options:
  rest:
    description:
      - The service or file from which the source V(rest) reads trays, with any structure of its JSON.
      - Expressions are JMESPath, with the functions C(lower(text)), C(split(separator, text)),
        C(sub(pattern, replacement, text)) (a regular expression) and C(pick(object, key)) added.
      - An invalid value of a field becomes unknown, and the tray gets a finding.
    type: dict
    suboptions:
      url:
        description: The address of the first page.
        type: str
      file:
        description: A file with the same JSON, instead of O(rest.url), as an absolute path or starting with C(~/).
        type: path
      trays:
        description: The expression for the list of trays on a page, as in C(results[?role.slug == 'gpu-tray']).
        type: str
        required: true
      fields:
        description:
          - The fields of a tray, each as an expression over its item of the list.
          - The clique comes from C(clique), or from C(cluster_uuid) and C(clique_id) together.
        type: dict
        required: true
        suboptions:
          name:
            description: The tray's inventory name.
            type: str
            required: true
          clique:
            description: The clique as C(<cluster UUID>.<clique ID>).
            type: str
          cluster_uuid:
            description: The UUID of the NVLink domain as the GPUs report it. NMX-M's C(DomainUUID) is another one.
            type: str
          clique_id:
            description: The clique's ID, a number or a text that is one.
            type: str
          chassis_serial:
            description: The chassis' serial number.
            type: str
          tray_index:
            description: The tray's index in its chassis, from 0.
            type: str
          gpu_uuids:
            description: A list of the GPUs' UUIDs, each as in C(GPU-<uuid>).
            type: str
          gpu_count:
            description: The number of GPUs.
            type: str
          addresses:
            description: >-
              One address, or a list of addresses, each a text (C(/<prefix length>) may follow) or an object with
              C(address), C(interface) and C(prefix).
            type: str
          driver_version:
            description: The version of the NVIDIA driver.
            type: str
          health:
            description: V(healthy), V(degraded), V(unhealthy) or V(unknown).
            type: str
          observed_at:
            description: Time of the observation, as in C(2026-11-21T05:00:00Z). The default is now.
            type: str
          problem:
            description: The reason as a text if the tray is unavailable at present. It then counts as unreachable.
            type: str
          slurm_node:
            description: The NodeName of the tray in Slurm.
            type: str
          kubernetes_node:
            description: The node name of the tray in Kubernetes.
            type: str
          ansible_host:
            description: The address or name to which Ansible connects.
            type: str
          slurm_cluster:
            description: The Slurm cluster that the tray belongs to, where several share the fabric.
            type: str
          kubernetes_cluster:
            description: The Kubernetes cluster that the tray belongs to, where several share the fabric.
            type: str
      next:
        description:
          - The address of the next page, as an expression over the page, or V(link) for the HTTP header C(Link).
          - Only path and query of that address are used, and only if it is on the same host.
          - Without it only one page is read.
        type: str
      max_pages:
        description: Maximum number of pages. More are an error.
        type: int
        default: 1000
      token_header:
        description: The HTTP header for the token.
        type: str
        default: Authorization
      token_prefix:
        description:
          - The word before the token in that header.
          - The default is V(Bearer) in the header C(Authorization), and empty in another.
        type: str
""".rstrip()
        + CONNECTION.replace("{source}", "rest")
    )
