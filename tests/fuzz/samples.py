# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Valid documents and texts from which the fuzz targets make their inputs."""

from __future__ import annotations

PROGRESS = {
    "schema_version": 1,
    "rollout": "imex",
    "written_at": "2026-11-21T05:00:00Z",
    "cliques": {"r01": {"state": "failed", "trays": {"r01t01": "it failed"}}, "r02": {"state": "pending", "trays": {}}},
}
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://198.51.100.7:6443", "certificate-authority-data": "LS0t"}}
    ],
    "users": [{"name": "u", "user": {"token": "secret", "client-certificate-data": "", "client-key-data": ""}}],
}
IP = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {
        "ifname": "host0",
        "addr_info": [{"local": "10.0.1.1", "prefixlen": 24}, {"local": "2001:db8::1", "prefixlen": 64}],
    },
]
IMEX_TABLES = (
    """Connectivity Table Legend:
!V! - Version mismatch, communication disabled.
C - Connected - Ready for operation

5/12/2025 06:08:10.580
Nodes:
Node #0   - 192.0.2.81      - READY                - Version: 570.172
Node #1   * 192.0.2.98 *    - UNAVAILABLE          - Version:

 Nodes From\\To  0   1
       0        C   !V!
       1        !V! I

Domain State: DEGRADED
""",
    "READY\n",
)
IMEX_DOMAIN = {
    "status": "UP",
    "timestamp": "5/12/2025 06:08:10.580",
    "nodes": {
        "0": {
            "status": "READY",
            "host": "192.0.2.81",
            "hostName": "r01t01",
            "version": "580.95.05",
            "connections": {"0": {"host": "192.0.2.81", "status": "CONNECTED", "changed": True}, "1": "C"},
        },
        "1": {"status": "INIT_GPU", "host": "192.0.2.82", "connections": {}},
    },
}
IMEX_CONFIG = """# IMEX
LOG_LEVEL=4
IMEX_CMD_PORT=50005
IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg
IMEX_ENABLE_AUTH_ENCRYPTION=1
IMEX_WAIT_FOR_QUORUM=RECOVERY
"""
IMEX_RECORD = {"clique": "r01", "generation": 3, "sha256": "a" * 64, "owner": "domain"}
SLURM_CONF = """ClusterName=nvlink
SlurmctldHost=ctl(198.51.100.2)
TopologyPlugin=topology/block
SelectType=select/cons_tres
PrologFlags=contain
include nvlink.conf
NodeName=r01t[01-18] CPUs=144 Boards=1 SocketsPerBoard=2 CoresPerSocket=72 ThreadsPerCore=1 RealMemory=870000
NodeName=DEFAULT Topology=default:r01 \\
  Gres=gpu:4
PartitionName=gold Nodes=r01t[01-18] Default=YES MaxTime=1-00:00:00
"""
TOPOLOGY_YAML = """---
- topology: nvlink
  cluster_default: true
  block:
    block_sizes:
    - 18
    - 36
    blocks:
    - block: r01
      nodes: r01t[01-18]
    - block: "r02"
      nodes:
- topology: flat
  flat: true
"""
TOPOLOGY_CONF = """# block1=9f3c1234-1111-4222-8333-444444444444.32766
BlockName=block1 Nodes=r01t[01-18]
BlockName=r02 Nodes=
BlockSizes=18,36
"""
SCONTROL = """BlockName=r01 BlockIndex=0 Nodes=r01t[01-18] BlockSize=18
AggregatedBlock=r01,r02 BlockIndex=2 Nodes=r01t[01-18],r02t01 BlockSize=36
ReservationName=nvlink_spare_r01 StartTime=2026-11-21T05:00:00 Nodes=r01t18 Users=root
Configuration data as of 2026-11-21T05:00:00
TopologyPlugin          = topology/block
SlurmctldParameters     = (null)
"""
SCONTROL_NODES = """NodeName=r01t01 Arch=aarch64 State=IDLE+DRAIN Reason=nvlink: rollout imex [root@2026-11-21T05:00:00]
NodeName=r01t02 NodeHostName=r01t02 State=DOWN*+NOT_RESPONDING Comment=a b
"""
PARTITIONS = """# Written by rackscale.nvlink
# sha256: 0000000000000000000000000000000000000000000000000000000000000000
# owns: {"grants": [["a", "b", "c"]], "qos": ["gold"]}
PartitionName=gold Nodes=r01t[01-18] Default=YES
"""
TIERS = [
    {
        "name": "gold",
        "blocks": ["r01"],
        "exclusive": "user",
        "default": True,
        "priority_tier": 10,
        "accounts": ["a"],
        "users": [{"name": "b", "account": "a"}],
        "allow_qos": ["normal"],
        "segment": {"default": 2, "max": 4},
        "qos": {"name": "gold", "priority": 5, "preempt": ["silver"], "max_tres_per_job": {"gres/gpu": 4}},
        "options": {"MaxTime": "1-00:00:00"},
    },
    {"name": "silver", "all": True, "min_nodes": 1, "max_nodes": 4, "state": "up", "per_block": False},
    {"name": "per", "cliques": ["r01", "r02"], "per_block": True, "priority_tier": 2},
]
SLURM_SURVEY = {
    "conf_dir": "/etc/slurm",
    "version": "26.05.5",
    "style": "yaml",
    "acting": "",
    "config": {"clustername": "beta", "topologyplugin": "topology/block", "accountingstoragetype": "x/slurmdbd"},
    "settings": {"topologyplugin": "topology/block"},
    "node_topologies": {"r01t01": "nvlink:r01"},
    "includes_ours": True,
    "includes_tiers": True,
    "site_partitions": {"all": "slurm.conf"},
    "records": {"qos": "gold|5\n", "assoc": "a|||gold\na|b||\n", "tres": "cpu|\ngres|gpu\n"},
    "unanswered": "",
    "limits": [],
    "texts": {
        "topology.yaml": TOPOLOGY_YAML,
        "topology.yaml.previous": TOPOLOGY_YAML,
        "topology.conf": TOPOLOGY_CONF,
        "nvlink_topology.conf": "TopologyPlugin=topology/block\n",
        "nvlink_partitions.conf": PARTITIONS,
        "job_submit.lua": "",
    },
    "checksums": {"topology.yaml": "0" * 64},
    "running": [
        {
            "topology": "nvlink",
            "cluster_default": "true",
            "block": {"block_sizes": ["18"], "blocks": [{"block": "r01", "nodes": "r01t[01-18]"}]},
        },
        {"topology": "flat", "cluster_default": "false", "flat": "true"},
    ],
    "shown": [
        {"name": "r01", "nodes": "r01t[01-18]", "size": 18, "aggregated": False},
        {"name": "r01,r02", "nodes": "r01t[01-18],r02t01", "size": 36, "aggregated": True},
    ],
    "nodes": [{"NodeName": "r01t01", "NodeHostName": "r01t01", "NodeAddr": "198.51.100.1", "State": "IDLE+CLOUD"}],
    "partitions": [{"PartitionName": "all", "Nodes": "r01t[01-02]", "Topology": "(null)", "State": "UP"}],
    "jobs": [{"id": "12", "user": "alice", "partition": "all", "nodes": "r01t[01-02]"}],
}
BENCHMARKS = (
    """Running multinode_device_to_device_memcpy_read_ce.
 0       N/A    798.02    798.25
 1    612.10       N/A    797.80

SUM multinode_device_to_device_memcpy_read_ce 4602.07
""",
    """  8589934592  2147483648     float     sum      -1    17001  505.26  842.10      0   17010  504.99  841.65      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 841.875
""",
    """{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [
  {"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [{"error_id": 7, "warning": "row remap"}]},
  null], "test_summary": {"status": "Fail"}}]}]}}
""",
)
