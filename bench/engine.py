"""Runs workloads: interleaved repetitions of all cases, fresh file systems, results as plain data."""
import os
import platform
import shutil
import subprocess
import time

from bench import data, files, peers, workloads
from bench.device import THROTTLE
from bench.measure import run

#: The default of `shale mount`: a quarter of the memory, at most 4 GiB.
BUDGET = min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4, 4 << 30)


class Setting:
    """The context of workloads: sizes of this run, data, peers, places."""

    def __init__(self, scale, device, scratch, cache, binary, repetitions):
        self.scale, self.device, self.scratch, self.cache = scale, device, scratch, cache
        self.repetitions = repetitions
        self.absent = {}
        self.peers = {}
        self.throttle_fault = None
        for name, peer in peers.make(binary).items():
            try:
                peer.check()
                self.peers[name] = peer
            except peers.Unavailable as reason:
                self.absent[peer.label] = str(reason)

    full = property(lambda self: self.scale == "full")
    quick = property(lambda self: self.scale == "quick")
    smoke = property(lambda self: self.scale == "smoke")
    throttled = property(lambda self: self.throttle_fault is None)

    def amount(self, full, quick, smoke):
        return {"full": full, "quick": quick, "smoke": smoke}[self.scale]

    def size(self, full, quick, smoke):
        """MiB for each scale; bytes."""
        return self.amount(full, quick, smoke) << 20

    def some(self, full, quick=None):
        """Names of available peers; quick runs may do with fewer."""
        if self.smoke:
            full = (peers.EXT4, peers.SHALE)
        elif self.quick and quick is not None:
            full = quick
        return [name for name in full if name in self.peers]

    def wind(self, size):
        return data.wind(size, self.cache)

    def archive(self):
        """A tar of Python's own library; None in a smoke run."""
        if self.smoke:
            return None
        path = os.path.join(self.cache, f"library-{self.scale}.tar")
        if not os.path.exists(path):
            part = "." if self.full else "asyncio"
            leave = ["--exclude=__pycache__", "--exclude=site-packages", "--exclude=test"]
            run("tar", "-cf", path + ".new", *leave, "-C", os.path.dirname(os.__file__), part)
            os.rename(path + ".new", path)
        return path

    def ferret(self):
        """Directory of Debian's ferret-datasets, fetched once."""
        target = os.path.join(self.cache, "ferret")
        if not os.path.isdir(target):
            shutil.rmtree(target + ".new", ignore_errors=True)
            os.makedirs(target + ".new")
            # apt-get's own user may not be able to write here, which it warns about.
            run("apt-get", "download", "-q", "ferret-datasets", cwd=target + ".new")
            package = next(name for name in os.listdir(target + ".new") if name.endswith(".deb"))
            run("dpkg-deb", "-x", package, "tree", cwd=target + ".new")
            os.rename(target + ".new", target)
        return target + "/tree/usr/share/ferret-vis/data"

    def place(self, peer):
        return peers.Place(self.peers[peer], self.device, self.scratch)


def measure(setting, name, say):
    """All of one workload, as plain data."""
    module = workloads.load(name)
    result = {"devices": {}, "tables": [], "absent": {}}
    begun = time.perf_counter()
    for device in devices(setting, module):
        setting.device.throttle(THROTTLE if device == "throttled" else 0)
        cases = module.cases(setting, device)
        rows = {}
        for repetition in range(setting.repetitions):
            last = repetition == setting.repetitions - 1
            for case in cases:
                if case.peer not in setting.peers or case.label in result["absent"]:
                    continue
                say(f"{name}, {device}, {repetition + 1} of {setting.repetitions}: {case.variant} {case.label}")
                with setting.place(case.peer) as place:
                    try:
                        figures = case.measure(place, last)
                    except peers.Unavailable as reason:
                        result["absent"][case.label] = str(reason)
                        continue
                row = rows.setdefault(case.variant, {}).setdefault(case.key, new_row(case))
                for metric, value in figures.items():
                    row["figures"].setdefault(metric, []).append(value)
                if place.peak:
                    row["peak"] = max(row.get("peak", 0), place.peak)
                    row.setdefault("daemon_cpu", []).append(sum(place.cpu.values()))
        if rows:
            result["devices"][device] = rows
    if hasattr(module, "tables"):
        setting.device.throttle(0)
        say(f"{name}: tables")
        result["tables"] = module.tables(setting)
    result["seconds"] = time.perf_counter() - begun
    return result


def devices(setting, module):
    """Those of this run; a smoke run does with one."""
    names = getattr(module, "QUICK", module.DEVICES) if setting.quick else module.DEVICES
    names = [name for name in names if name == "free" or setting.throttled]
    return names[:1] if setting.smoke else names


def new_row(case):
    return {"label": case.label, "peer": case.peer, "figures": {}}


def machine(setting):
    """Facts about the machine and the run that readers need."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory": memory,
        "budget": BUDGET,
        "load": os.getloadavg()[0],
        "shale": run(next(peer.binary for peer in setting.peers.values() if isinstance(peer, peers.Shale)), "--version").strip(),
        "direct_loop": setting.device.direct,
    }


def check_throttle(setting):
    """Raw transfers, and the rate of an fsync on ext4 and btrfs, in MB/s; sets `throttle_fault`.

    After a pause the kernel lets the first tenth of a second pass at once, about 20 MiB, so
    that small transfers look faster than the limit; that is the same for everybody.
    """
    setting.throttle_fault = setting.device.throttle_fault()
    if not setting.throttled:
        return {"fault": setting.throttle_fault}
    setting.device.throttle(THROTTLE)
    try:
        found = {f"raw {way}": speed / 1e6 for way, speed in setting.device.raw_speeds().items()}
        noise = files.raw(data.mixed(100, setting.size(256, 128, 32), 1))
        for name in (peers.EXT4, peers.FORCE3):
            if name not in setting.peers:
                continue
            with setting.place(name) as place:
                path = place.at("noise")
                files.write(path, noise, files.MEBI)
                found[f"{place.peer.label} fsync"] = len(noise) / 1e6 / files.sync(path)
        return found
    finally:
        setting.device.throttle(0)


def check_python(scratch):
    """Writes of 8 KiB to memory by this program and by dd, in MB/s: Python must not be the limit."""
    size = 256 << 20
    target = "/dev/shm" if os.path.isdir("/dev/shm") else scratch
    path = os.path.join(target, f"shale-bench-{os.getpid()}")
    buffer = memoryview(bytearray(size))
    try:
        ours = size / 1e6 / files.write(path, buffer, 8 << 10)
        os.unlink(path)
        begun = time.perf_counter()
        subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=8k", f"count={size >> 13}"], check=True, capture_output=True)
        return {"python": ours, "dd": size / 1e6 / (time.perf_counter() - begun)}
    finally:
        if os.path.exists(path):
            os.unlink(path)
