"""The file systems that are compared. Each is formatted on the same device before every repetition."""
import os
import shutil
import subprocess
import time

from bench.measure import drop_caches, process_cpu, process_peak, run, uninterrupted


class Unavailable(Exception):
    """A peer cannot be used here; the message says why."""


class Place:
    """A peer, freshly made and mounted; `path` is where programs work."""

    def __init__(self, peer, device, directory):
        self.peer, self.device = peer, device
        self.under = os.path.join(directory, "device")
        self.path = os.path.join(directory, "mount")
        self.mounted = False
        self.peak, self.cpu = 0, {}

    def __enter__(self):
        os.makedirs(self.under, exist_ok=True)
        os.makedirs(self.path, exist_ok=True)
        try:
            self.peer.format(self.device)
            self.mount()
        except BaseException:
            self.peer.abandon(self)
            raise
        return self

    def mount(self):
        with uninterrupted():
            self.mounted = True
            self.peer.mount(self)

    def unmount(self):
        """Seconds it takes."""
        self.observe()
        begun = time.perf_counter()
        with uninterrupted():
            self.peer.unmount(self)
            self.mounted = False
        return time.perf_counter() - begun

    def remount(self):
        """Cold: nothing is left in the caches of the kernel or of a daemon. Seconds of the unmount."""
        taken = self.unmount()
        drop_caches()
        self.mount()
        return taken

    def observe(self):
        """Notes what the daemon, if there is one, has used so far."""
        pid = self.peer.daemon(self)
        if pid is not None:
            self.peak = max(self.peak, process_peak(pid))
            self.cpu[pid] = process_cpu(pid)

    def at(self, name):
        return os.path.join(self.path, name)

    def stored(self, path):
        """Bytes that a file, or all files of a directory, take on the device."""
        return self.peer.stored(path)

    def __exit__(self, kind, *_):
        if not self.mounted:
            return
        if kind is None:
            self.unmount()
        else:
            self.peer.abandon(self)


def unmount(target):
    """A daemon that is just leaving may keep a mount busy for a moment."""
    for attempt in range(100):
        try:
            return run("umount", target)
        except subprocess.CalledProcessError as error:
            if "busy" not in error.stderr or attempt == 99:
                raise
            time.sleep(0.05)


def close_below(directory):
    """Closes the files that this process has open in a directory: an interrupt comes before any `close`."""
    below = directory.rstrip("/") + "/"
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(below):
                os.close(descriptor)
        except OSError:
            continue  # the one that listed them


def files(path):
    if not os.path.isdir(path):
        yield path
    for directory, _, names in os.walk(path):
        yield from (os.path.join(directory, name) for name in names)


class Peer:
    """The common part of all peers."""

    daemon = staticmethod(lambda place: None)

    def __init__(self, name, label):
        self.name, self.label = name, label

    def check(self):
        """Raises Unavailable."""

    def stored(self, path):
        run("sync", "-f", path)
        return sum(os.stat(name).st_blocks * 512 for name in files(path))

    def abandon(self, place):
        """Something failed; leave nothing mounted."""
        close_below(place.path)
        for target in (place.path, place.under):
            if os.path.ismount(target):
                try:
                    unmount(target)
                except subprocess.CalledProcessError:
                    run("umount", "-l", target)


class Ext4(Peer):
    def format(self, device):
        # Nothing is discarded, and no thread zeroes inode tables behind a measurement's back.
        run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", device.path)

    def mount(self, place):
        run("mount", "-o", "noinit_itable", place.device.path, place.path)

    def unmount(self, place):
        unmount(place.path)


class Btrfs(Peer):
    def __init__(self, name, option):
        super().__init__(name, f"btrfs {option}")
        self.option = option

    def check(self):
        with open("/proc/filesystems") as file:
            if "btrfs" not in file.read().split():
                raise Unavailable("this kernel has no btrfs")

    def format(self, device):
        run("mkfs.btrfs", "-q", "-f", "-K", device.path)

    def mount(self, place):
        run("mount", "-o", f"nodiscard,{self.option}", place.device.path, place.path)

    def unmount(self, place):
        unmount(place.path)

    def stored(self, path):
        run("sync", "-f", path)
        total = next(line for line in run("compsize", "-b", path).splitlines() if line.startswith("TOTAL"))
        return int(total.split()[2])


class Bindfs(Ext4):
    """ext4 through a plain FUSE pass-through, for the cost of FUSE itself."""

    def check(self):
        if shutil.which("bindfs") is None:
            raise Unavailable("bindfs is not installed")

    def mount(self, place):
        run("mount", "-o", "noinit_itable", place.device.path, place.under)
        # Without big_writes libfuse 2 passes on no more than a page at a time.
        run("bindfs", "-o", "big_writes", place.under, place.path)

    def unmount(self, place):
        unmount(place.path)
        unmount(place.under)


class Shale(Ext4):
    """A store on ext4, on the same device."""

    def __init__(self, name, label, binary, options):
        super().__init__(name, label)
        self.binary, self.options = binary, options

    def mount(self, place):
        run("mount", "-o", "noinit_itable", place.device.path, place.under)
        self.mount_store(place)

    def mount_store(self, place, options=None):
        run(self.binary, "mount", "-o", options or self.options, place.under + "/store", place.path)

    def unmount_store(self, place):
        run(self.binary, "unmount", place.path)

    def unmount(self, place):
        self.unmount_store(place)
        unmount(place.under)

    def daemon(self, place):
        with open(place.under + "/store/lock") as file:
            return int(file.read().split()[0])

    def stored(self, path):
        return sum(self.ask(name, "stored") for name in files(path))

    @staticmethod
    def ask(path, what):
        return int(os.getxattr(path, f"user.shale.stat.{what}"))

    def abandon(self, place):
        close_below(place.path)
        log = place.under + "/store/shale.log"
        if os.path.exists(log):
            with open(log) as file:
                for line in file.read().splitlines()[-20:]:
                    print("  shale.log:", line)
        try:
            self.unmount_store(place)
        except subprocess.CalledProcessError as error:
            print("  shale unmount:", error.stderr.strip())
        super().abandon(place)


EXT4, BINDFS, SHALE, DIRECT = "ext4", "bindfs", "shale", "shale-direct"
BTRFS, FORCE1, FORCE3 = "btrfs-zstd1", "btrfs-force-zstd1", "btrfs-force-zstd3"
#: Every peer, in the order of the tables.
ALL = (EXT4, BTRFS, FORCE1, FORCE3, BINDFS, SHALE, DIRECT)
#: For workloads that say nothing about the others, to keep a run under half an hour.
DEFAULTS = (EXT4, BTRFS, FORCE1, FORCE3, BINDFS, SHALE)
CORE = (EXT4, FORCE3, BINDFS, SHALE)


def on(device, names):
    """Without bindfs where a slow device hides the cost of FUSE, which is its only purpose."""
    return tuple(name for name in names if device == "free" or name != BINDFS)


def portion(place, values, slow=(BINDFS,)):
    """The bytes a peer is given: peers that would take most of the time get an eighth."""
    return values[: max(1, len(values) // 8)] if place.peer.name in slow else values


def make(binary):
    """All peers by name. Settling is off: it is measured separately."""
    return {
        peer.name: peer
        for peer in (
            Ext4(EXT4, "ext4"),
            Btrfs(BTRFS, "compress=zstd:1"),
            Btrfs(FORCE1, "compress-force=zstd:1"),
            Btrfs(FORCE3, "compress-force=zstd:3"),
            Bindfs(BINDFS, "bindfs on ext4"),
            Shale(SHALE, "ShaleFS", binary, "settle=off"),
            Shale(DIRECT, "ShaleFS -o direct_io", binary, "settle=off,direct_io"),
        )
    }
