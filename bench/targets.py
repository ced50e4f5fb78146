"""The target figures, and whether a run reaches them."""
from dataclasses import dataclass
from typing import Callable, Optional

from bench import peers
from bench.stats import Sample

EXTRA_MEMORY = 128 << 20


@dataclass(frozen=True)
class Target:
    """A figure: at least (`>=`) or at most (`<=`) the target."""

    text: str
    sign: str
    asked: float
    #: Takes a Results; None where the run did not measure it.
    value: Callable
    #: The same figure with `-o direct_io`, where that is of interest.
    direct: Optional[Callable] = None

    def reached(self, value):
        return value >= self.asked if self.sign == ">=" else value <= self.asked


class Results:
    """Reads the plain data of a run."""

    def __init__(self, run):
        self.run = run

    def row(self, bench, device, key, variant=""):
        return self.run["benches"].get(bench, {}).get("devices", {}).get(device, {}).get(variant, {}).get(key)

    def sample(self, bench, device, key, metric, variant=""):
        row = self.row(bench, device, key, variant)
        values = row and row["figures"].get(metric)
        return Sample(tuple(values)) if values else None

    def ratio(self, bench, device, metric, key, *others, variant=""):
        """A median by the largest median of the others."""
        mine = self.sample(bench, device, key, metric, variant)
        theirs = [self.sample(bench, device, other, metric, variant) for other in others]
        theirs = [sample.median for sample in theirs if sample and sample.median]
        return mine.median / max(theirs) if mine and theirs else None

    def variants(self, bench, device):
        return self.run["benches"].get(bench, {}).get("devices", {}).get(device, {})

    def figure(self, bench, name):
        for table in self.run["benches"].get(bench, {}).get("tables", []):
            if name in table["figures"]:
                return table["figures"][name]
        return None


def against(bench, device, metric, *others, variant="", key=peers.SHALE):
    return lambda results: results.ratio(bench, device, metric, key, *others, variant=variant)


def median(bench, device, metric, key=peers.SHALE, variant=""):
    def value(results):
        sample = results.sample(bench, device, key, metric, variant)
        return sample and sample.median

    return value


def small_files(metric, *others):
    """The variant's name has the number of files, which depends on the scale."""

    def value(results):
        for variant, rows in results.variants("files", "free").items():
            if peers.SHALE in rows and metric in rows[peers.SHALE]["figures"]:
                if others:
                    return results.ratio("files", "free", metric, peers.SHALE, *others, variant=variant)
                return results.sample("files", "free", peers.SHALE, metric, variant).median
        return None

    return value


def worst_application(metric, *devices):
    """The least advantage over any application that compresses by itself; the better form of ShaleFS.

    On the first of the devices that has figures.
    """

    def on(device, results):
        rows = results.variants("hdf5", device).get("", {})
        applications = [key for key in rows if key.startswith("app ")]
        forms = [key for key in (f"{peers.SHALE} contiguous", f"{peers.SHALE} chunked") if key in rows]
        if not applications or not forms:
            return None
        return max(
            min(results.ratio("hdf5", device, metric, form, other) for other in applications) for form in forms
        )

    def value(results):
        return next((found for found in (on(device, results) for device in devices) if found is not None), None)

    return value


def memory(results):
    """MiB beyond the budget, over every workload on a default mount and the one with a small budget."""
    most = None
    for bench in results.run["benches"].values():
        for device in bench["devices"].values():
            for rows in device.values():
                for row in rows.values():
                    if "peak" in row:
                        most = max(row["peak"] - results.run["machine"]["budget"], most or -(1 << 62))
    small = [results.sample("memory", device, peers.SHALE, "peak") for device in ("throttled", "free")]
    small = [(sample.high - 128) * 2**20 for sample in small if sample]
    extra = [value for value in (most, *small) if value is not None]
    return max(extra) / 2**20 if extra else None


BTRFS = (peers.BTRFS, peers.FORCE1, peers.FORCE3)
TARGETS = (
    Target("1 MiB writes, close, unthrottled: by ext4", ">=", 0.8, against("stream", "free", "close", peers.EXT4),
           against("stream", "free", "close", peers.EXT4, key=peers.DIRECT)),
    Target("1 MiB writes, close, unthrottled: by the fastest btrfs", ">=", 1, against("stream", "free", "close", *BTRFS),
           against("stream", "free", "close", *BTRFS, key=peers.DIRECT)),
    Target("1 MiB writes, durable, unthrottled: by btrfs compress-force=zstd:1", ">=", 1,
           against("stream", "free", "durable", peers.FORCE1), against("stream", "free", "durable", peers.FORCE1, key=peers.DIRECT)),
    Target("1 MiB writes, durable, unthrottled: by ext4", ">=", 0.7, against("stream", "free", "durable", peers.EXT4),
           against("stream", "free", "durable", peers.EXT4, key=peers.DIRECT)),
    Target("1 MiB writes, durable, 200 MB/s: by ext4", ">=", 1.5, against("stream", "throttled", "durable", peers.EXT4),
           against("stream", "throttled", "durable", peers.EXT4, key=peers.DIRECT)),
    Target("1 MiB writes, durable, 200 MB/s: by btrfs compress-force=zstd:3", ">=", 1.3,
           against("stream", "throttled", "durable", peers.FORCE3), against("stream", "throttled", "durable", peers.FORCE3, key=peers.DIRECT)),
    Target("8 KiB writes, close: by ext4", ">=", 0.7, against("small", "free", "close", peers.EXT4)),
    Target("classic NetCDF, unlimited dimension, close: by ext4", ">=", 0.7, against("netcdf", "free", "close", peers.EXT4)),
    Target("shared file, random-50, durable, 200 MB/s: by ext4", ">=", 1.8,
           against("shared", "throttled", "durable", peers.EXT4, variant="random-50")),
    Target("shared file, random-10, durable, 200 MB/s: by ext4", ">=", 4,
           against("shared", "throttled", "durable", peers.EXT4, variant="random-10")),
    Target("cold sequential read, 200 MB/s: by ext4", ">=", 1.5, against("stream", "throttled", "cold", peers.EXT4)),
    Target("cold sequential read, unthrottled: by btrfs compress-force=zstd:3", ">=", 1,
           against("stream", "free", "cold", peers.FORCE3)),
    Target("4 KiB random reads, chunks decoded: by bindfs", ">=", 1,
           against("read", "free", "kept4k", peers.BINDFS, variant="random")),
    Target("creating small files: by bindfs", ">=", 1, small_files("create", peers.BINDFS)),
    Target("deleting small files: by bindfs", ">=", 1, small_files("delete", peers.BINDFS)),
    Target("time per create, many files in a directory by few", "<=", 1.25, small_files("growth")),
    Target("time per delete, many files in a directory by few", "<=", 1.25, small_files("delete_growth")),
    Target("HDF5 durable, unthrottled: by the fastest application that compresses", ">=", 1, worst_application("durable", "free")),
    Target("HDF5 durable, 200 MB/s: by the fastest application that compresses", ">=", 1, worst_application("durable", "throttled")),
    Target("HDF5 raw / stored: by the densest application that compresses", ">=", 1, worst_application("ratio", "free", "throttled")),
    Target("CPU for writing: by btrfs compress-force=zstd:3", "<=", 1, against("stream", "free", "cpu", peers.FORCE3),
           against("stream", "free", "cpu", peers.FORCE3, key=peers.DIRECT)),
    Target("memory beyond the budget, MiB, worst of all workloads", "<=", EXTRA_MEMORY >> 20, memory),
    Target("ferret-datasets: btrfs compress-force=zstd:3 by settled", ">=", 1.45, lambda r: r.figure("settle", "btrfs_by_settled")),
    Target("ferret-datasets: files not smaller than nccopy -d5 -s", "<=", 0, lambda r: r.figure("settle", "larger_than_nccopy")),
    Target("front to back, settled by as written, unthrottled", ">=", 1, median("settle", "free", "gain")),
    Target("front to back, settled by as written, 200 MB/s", ">=", 1, median("settle", "throttled", "gain")),
    Target("slices of a settled file: read by the tiles' share", "<=", 2, lambda r: r.figure("settle", "slice_excess")),
    Target("frames read by `ncdump -h` of a settled file", "<=", 3, lambda r: r.figure("settle", "header_frames")),
    Target("settling, one worker, MB/s", ">=", 80, median("settle", "free", "settle")),
    Target("index, % of stored bytes", "<=", 0.2,
           lambda r: None if r.figure("settle", "index_share") is None else 100 * r.figure("settle", "index_share")),
)  # fmt: skip


def judge(run):
    """Each target with its value and verdict (None: not measured)."""
    results, verdicts = Results(run), []
    for target in TARGETS:
        value = target.value(results)
        verdicts.append(
            {
                "text": target.text,
                "sign": target.sign,
                "asked": target.asked,
                "value": value,
                "direct": target.direct(results) if target.direct else None,
                "reached": None if value is None else target.reached(value),
            }
        )
    return verdicts
