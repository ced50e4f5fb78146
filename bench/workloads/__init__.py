"""One module for each workload.

A module has NAME, TITLE, TEXT, METRICS and `cases(setting, device)`, which lists what is
measured on one device. A case is one row of one table: `measure(place, last)` does one
repetition on a freshly made file system and returns its figures by the names in METRICS;
`last` asks it to verify what it wrote. `tables(setting)` is for what is no such row.
"""
import importlib
from dataclasses import dataclass, field
from typing import Callable

NAMES = (
    "stream", "small", "netcdf", "hdf5", "shared", "flash", "pandana", "read",
    "files", "update", "tenants", "memory", "settle",
)  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """A column: what it is, its unit, which way is better (+1 more, -1 less, 0 neither)."""

    title: str
    unit: str
    better: int = 1


@dataclass(frozen=True)
class Case:
    """One row of one table."""

    label: str
    peer: str
    measure: Callable
    #: The table it is in; a workload may have several on one device.
    variant: str = ""
    #: Identifies the row in results; the peer's name unless several rows share a peer.
    key: str = field(default="")

    def __post_init__(self):
        object.__setattr__(self, "key", self.key or self.peer)


def load(name):
    return importlib.import_module(f"bench.workloads.{name}")


def per_peer(setting, peers, measure, variant=""):
    """The same measurement on each of these peers."""
    return [Case(setting.peers[name].label, name, measure, variant) for name in peers]
