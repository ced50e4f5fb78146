"""The instruments of the workloads: clocks, CPU time, memory, child processes."""
import os
import pickle
import select
import signal
import subprocess
import time
import traceback
from contextlib import contextmanager

TICK = os.sysconf("SC_CLK_TCK")


class Interrupts:
    """Signals that end the run, held back while something is being mounted or unmounted."""

    depth, pending = 0, None

    @classmethod
    def catch(cls):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, cls.arrived)

    @classmethod
    def arrived(cls, number, _frame):
        # One is enough: cleaning up must not be interrupted by the second.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if cls.depth:
            cls.pending = number
        else:
            raise SystemExit(128 + number)


@contextmanager
def uninterrupted():
    """Either all of the block is done or, after a failure, its exception comes through."""
    Interrupts.depth += 1
    try:
        yield
    finally:
        Interrupts.depth -= 1
    if Interrupts.pending is not None and not Interrupts.depth:
        number, Interrupts.pending = Interrupts.pending, None
        raise SystemExit(128 + number)


def run(*command, **options):
    """Output of a command; its stderr is shown when it fails."""
    # In a separate session: a terminal's interrupt is for this program alone.
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, **options)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def machine_cpu():
    """CPU seconds that this machine has spent on anything, I/O wait not counted."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:]]
    user, nice, system, _idle, _wait, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / TICK


def process_cpu(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def process_peak(pid):
    """The most memory a process has had resident, in bytes."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


class Span:
    """Wall and CPU seconds of a `with span()` block."""

    seconds = 0.0
    cpu = 0.0


@contextmanager
def span():
    result = Span()
    cpu, begun = machine_cpu(), time.perf_counter()
    yield result
    result.seconds = time.perf_counter() - begun
    result.cpu = machine_cpu() - cpu


def drop_caches():
    """Drops only clean pages, so unmount or sync first."""
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


class ChildFailed(Exception):
    """A child process raised something; the message is its traceback."""


class Child:
    """A forked process that gets ready, waits for `go`, and then answers once.

    `work(ready)` calls `ready()` when the clock may start. The libraries that a workload
    uses are loaded in children only, so that no state passes from one repetition to the next.
    """

    def __init__(self, work):
        self.answers, answer = os.pipe()
        starts, self.start = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                # The parent handles interrupts, and then ends this process.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                # Otherwise the child would hold these open, and never see its parent die.
                os.close(self.answers)
                os.close(self.start)

                def ready():
                    os.write(answer, b"r")
                    if os.read(starts, 1) != b"g":
                        os._exit(1)

                try:
                    payload = (True, work(ready))
                except BaseException:
                    payload = (False, traceback.format_exc())
                with os.fdopen(answer, "wb") as pipe:
                    pipe.write(b"=")
                    pickle.dump(payload, pipe)
                status = 0
            finally:
                os._exit(status)
        os.close(answer)
        os.close(starts)

    def until_ready(self, limit=300):
        """True when it is ready; False when it has answered or ended already."""
        if not select.select([self.answers], [], [], limit)[0]:
            raise TimeoutError("a child does not get ready")
        byte = os.read(self.answers, 1)
        self.first = byte
        return byte == b"r"

    def go(self):
        os.write(self.start, b"g")

    def result(self, limit=600):
        if not select.select([self.answers], [], [], limit)[0]:
            raise TimeoutError("a child does not end")
        with os.fdopen(self.answers, "rb") as pipe:
            self.answers = None
            data = pipe.read()
        os.waitpid(self.pid, 0)
        self.pid = None
        if self.first == b"=":
            data = b"=" + data
        if not data.startswith(b"="):
            raise ChildFailed("a child ended without an answer")
        fine, value = pickle.loads(data[1:])
        if not fine:
            raise ChildFailed(value)
        return value

    def end(self):
        """Kills it if it is still there, and closes what is open."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None
        for name in ("answers", "start"):
            if getattr(self, name) is not None:
                os.close(getattr(self, name))
                setattr(self, name, None)


def in_children(*works):
    """Runs functions side by side in processes; returns (span until all have answered, answers)."""
    children = []
    try:
        for work in works:
            children.append(Child(work))
        for child in children:
            child.until_ready()
        with span() as taken:
            for child in children:
                if child.first == b"r":
                    child.go()
            results = [child.result() for child in children]
        return taken, results
    finally:
        for child in children:
            child.end()


def in_child(work):
    """Runs one function in a separate process; returns its answer."""
    return in_children(work)[1][0]
