"""The block device all peers use in turn: one loop device, throttled or not."""
import ctypes
import os
import re
import signal
import subprocess
import time

from bench.measure import run

CGROUP = "/sys/fs/cgroup/blkio"
#: What stands for a node's share of a parallel file system, bytes per second each way.
THROTTLE = 200 << 20
#: How far a raw transfer may be from it before the throttle counts as not working.
TOLERANCE = (0.75, 1.2)


class Device:
    """A loop device on an image that has been written once, so that no peer pays for allocation."""

    def __init__(self, directory, size):
        self.image = os.path.join(directory, "device.img")
        self.size = size
        self.path = None
        self.direct = True
        self.limit = 0

    def __enter__(self):
        sweep_image(self.image)
        run("dd", "if=/dev/zero", f"of={self.image}", "bs=1M", f"count={self.size >> 20}", "conv=fsync")
        try:
            try:
                self.path = run("losetup", "-f", "--show", "--direct-io=on", self.image).strip()
            except subprocess.CalledProcessError:
                self.direct = False
                self.path = run("losetup", "-f", "--show", self.image).strip()
        except BaseException:
            os.unlink(self.image)
            raise
        return self

    def __exit__(self, *_):
        try:
            self.throttle(0)
            run("losetup", "-d", self.path)
        finally:
            os.unlink(self.image)

    @property
    def number(self):
        with open(f"/sys/block/{os.path.basename(self.path)}/dev") as file:
            return file.read().strip()

    def throttle(self, limit):
        """Limits reads and writes to `limit` bytes per second each; 0 lifts it."""
        if limit == self.limit:
            return
        for way in ("read", "write"):
            with open(f"{CGROUP}/blkio.throttle.{way}_bps_device", "w") as file:
                file.write(f"{self.number} {limit}")
        self.limit = limit

    def throttle_fault(self):
        """Why the throttle cannot be used, or None when raw transfers obey it."""
        try:
            self.throttle(THROTTLE)
        except OSError as error:
            return f"{error.filename or CGROUP}: {error.strerror}"
        try:
            for way, speed in self.raw_speeds().items():
                share = speed / THROTTLE
                if not TOLERANCE[0] <= share <= TOLERANCE[1]:
                    return f"raw {way} runs at {speed / 1e6:.0f} MB/s"
            return None
        finally:
            self.throttle(0)

    def raw_speeds(self, size=96 << 20):
        """Bytes per second of dd with O_DIRECT; overwrites the device."""
        count = f"count={size >> 20}"
        speeds = {}
        for way, command in {
            "write": ("dd", "if=/dev/zero", f"of={self.path}", "bs=1M", count, "oflag=direct"),
            "read": ("dd", f"if={self.path}", "of=/dev/null", "bs=1M", count, "iflag=direct"),
        }.items():
            begun = time.perf_counter()
            run(*command)
            speeds[way] = size / (time.perf_counter() - begun)
        return speeds


def sweep_image(image):
    """Detaches the devices that a killed run has left."""
    if not os.path.exists(image):
        return
    for line in run("losetup", "-j", image).splitlines():
        run("losetup", "-d", line.split(":")[0])
    os.unlink(image)


def own_mounts():
    """From here on mounts are seen by this process and its children only.

    Else a container that starts meanwhile would get a copy of each, and keep the device busy.
    """
    new_namespace = 0x00020000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_namespace) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"unshare: {os.strerror(error)}")
    run("mount", "--make-rprivate", "/")


def mounts_below(directory, process="self"):
    """Mount points below a directory as a process sees them."""
    below = directory.rstrip("/") + "/"
    with open(f"/proc/{process}/mountinfo") as file:
        targets = [decode(line.split()[4]) for line in file]
    return [target for target in targets if target.startswith(below)]


def sweep_mounts(directory):
    """Unmounts everything below `directory`, innermost first."""
    for target in reversed(mounts_below(directory)):
        subprocess.run(["umount", "-l", target], check=False, capture_output=True)


def sweep_daemons(directory):
    """Ends the daemons of a run that was killed: those that see mounts below `directory`."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm") as file:
                name = file.read().strip()
            if name in ("shale", "bindfs") and mounts_below(directory, process):
                os.kill(int(process), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile


def decode(field):
    """A path as mountinfo writes it: blanks and the like are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
