# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_certificate
short_description: "[INTERNAL] Plan the certificate of a tray for TLS between members of an IMEX domain"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Returns the files on the controller and the names in the certificate of a tray. The role
    P(rackscale.nvlink.imex#role) signs it from these values alone, on the controller, because a tray's facts may
    replace its variables.
  - The folder, the validity and whether to rotate are C(imex_tls_ca_dir), C(imex_tls_days) and C(imex_tls_rotate) as
    localhost has them. The address is that of the fabric file, which is C(imex_fabric_file), C(fabric_file) or
    C(nvlink_fabric_file) of localhost.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  tray:
    description: The tray's name in the fabric file, by default the inventory name.
    type: str
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
  platform:
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Plan the certificate of a tray
  rackscale.nvlink.imex_certificate:
  register: certificate
"""

RETURN = r"""
files:
  description: The tray's C(key) and C(certificate), and the certificate of the C(authority), on the controller.
  returned: success
  type: dict
  sample: {key: /srv/ca/r01t01.key, certificate: /srv/ca/r01t01.pem, authority: /srv/ca/ca.pem}
folder:
  description: The authority's folder.
  returned: success
  type: str
  sample: /srv/ca
name:
  description: The common name.
  returned: success
  type: str
  sample: r01t01
subject_alt_name:
  description: The names in the certificate.
  returned: success
  type: list
  elements: str
  sample: ["IP:198.51.100.11", "DNS:r01t01"]
days:
  description: How long the certificate is valid.
  returned: success
  type: int
  sample: 365
rotate:
  description: Whether the key and certificate are made again.
  returned: success
  type: bool
  sample: false
"""
