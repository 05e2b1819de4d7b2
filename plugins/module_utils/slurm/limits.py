# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Features that a site uses and that work with limits in its release of Slurm, or are set where nothing reads them.

Private to this collection; it may change in any release. Python 3.9, standard library only. From SchedMD's change logs;
that sbatch refuses --requeue=expedite was observed on 26.05.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol, spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import Version
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import ShownBlock

CODE = "slurm_feature_limited"
EXPEDITE, TIMEOUT, RESERVATION = "expedite", "timeout", "reservation"
PARTITIONS, CHANNELS = "partitions", "channels"
_EXPEDITED = "enable_expedited_requeue"


def read(
    slurm: Slurm,
    version: Version,
    config: Mapping[str, str],
    partitions: Iterable[Mapping[str, str]],
    shown: Sequence[ShownBlock],
) -> list[str]:
    """The cases of CODE. config: of Slurm.config(). partitions: their records. shown: the blocks that run."""
    used = scontrol.parse_records(slurm.scontrol("-o", "show", "reservation"))
    return cases(version, config, rules.partitions_of(partitions), shown, used)


def cases(
    version: Version,
    config: Mapping[str, str],
    partitions: Sequence[rules.Partition],
    shown: Sequence[ShownBlock],
    reservations: Iterable[Mapping[str, str]],
) -> list[str]:
    """As read(). reservations: the records of ``scontrol show reservation``."""
    expedited, misplaced = (
        _EXPEDITED in config.get(key, "").lower().split(",") for key in ("slurmctldparameters", "schedulerparameters")
    )
    has_spares = any(
        row.get("ReservationName", "").startswith(spares.PREFIX) or "REPLACE" in row.get("Flags", "")
        for row in reservations
    )
    blocks = [set(line.nodes) for line in shown if not line.aggregated]
    with_partition = [block for block in blocks if any(block.issuperset(part.nodes or {""}) for part in partitions)]
    found = {
        EXPEDITE: misplaced and not expedited,
        TIMEOUT: version < (26, 5, 0) and (expedited or has_spares),
        RESERVATION: version < (26, 5, 0) and has_spares,
        PARTITIONS: version < (25, 11, 1) and len(with_partition) > 1,
        CHANNELS: (25, 11, 0) <= version < (25, 11, 4) and config.get("switchtype") == "switch/nvidia_imex",
    }
    return [case for case, is_limited in found.items() if is_limited]


def findings(found: Iterable[str], version: str) -> list[HostFinding]:
    """The findings of these cases, of which others are dropped."""
    given, known = set(found), (EXPEDITE, TIMEOUT, RESERVATION, PARTITIONS, CHANNELS)
    return [host_finding(CODE, case, version=version) for case in known if case in given]
