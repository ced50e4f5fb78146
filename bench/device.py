"""The block device all peers use in turn: one loop device, throttled or not."""
import os
import re
import subprocess
import time

from bench.measure import run

CGROUP = "/sys/fs/cgroup/blkio"
#: What stands for a node's share of a parallel file system, bytes per second each way.
THROTTLE = 200 << 20
#: How far a raw transfer may be from it before the throttle counts as not working.
TOLERANCE = (0.75, 1.2)


class Device:
    """A loop device on an image that has been written once, so that nobody pays for allocation."""

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
        """Bytes per second of dd with O_DIRECT; what is on the device is lost."""
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
    """Detaches what a run that was killed has left."""
    if not os.path.exists(image):
        return
    for line in run("losetup", "-j", image).splitlines():
        run("losetup", "-d", line.split(":")[0])
    os.unlink(image)


def sweep_mounts(directory):
    """Unmounts everything below `directory`, innermost first."""
    with open("/proc/self/mountinfo") as file:
        targets = [decode(line.split()[4]) for line in file]
    below = directory.rstrip("/") + "/"
    for target in reversed([target for target in targets if target.startswith(below)]):
        subprocess.run(["umount", "-l", target], check=False, capture_output=True)


def decode(field):
    """A path as mountinfo writes it: blanks and the like are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
