"""Very many small files."""
import os
import tarfile
import time

from bench import files, peers
from bench.measure import in_children, run
from bench.workloads import Metric, per_peer

NAME = "files"
TITLE = "Small files"
TEXT = (
    "Files of 1 KiB in one directory: created and written; after a remount listed and asked for their attributes; "
    "deleted. Untar: Python's own library from an archive in memory. Growth: how much longer a file takes to be "
    "created or deleted while its directory has many than while it has few; 1 is linear. Few is the first tenth beyond "
    "a hundredth, many the last tenth, of one directory that is filled and then emptied, its last files first."
)
DEVICES = ("free",)
METRICS = {
    "create": Metric("create", "files/s"),
    "list": Metric("readdir, cold", "files/s"),
    "stat": Metric("stat, cold", "files/s"),
    "delete": Metric("delete", "files/s"),
    "untar": Metric("untar", "files/s"),
    "few": Metric("create, few", "files/s"),
    "many": Metric("create, many", "files/s"),
    "growth": Metric("growth of create", "", -1),
    "delete_few": Metric("delete, few", "files/s"),
    "delete_many": Metric("delete, many", "files/s"),
    "delete_growth": Metric("growth of delete", "", -1),
}


def cases(setting, device):
    wide = (peers.EXT4, peers.FORCE3, peers.BINDFS, peers.SHALE)
    many = setting.amount(100_000, 5_000, 100)
    return [
        *per_peer(setting, setting.some(wide, (peers.BINDFS, peers.SHALE)), small(setting), f"{setting.amount(20_000, 2_000, 50)} files"),
        *per_peer(setting, setting.some((peers.EXT4, peers.SHALE), (peers.SHALE,)), growth(many), f"up to {many} files"),
    ]


CONTENT = bytes(range(256)) * 4


def fill(directory, count):
    """Creates files; seconds and their names."""
    os.mkdir(directory)
    names = [os.path.join(directory, f"file{number:06}") for number in range(count)]
    return create(names), names


def create(names):
    begun = time.perf_counter()
    for name in names:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, CONTENT)
        os.close(descriptor)
    return time.perf_counter() - begun


def delete(names):
    begun = time.perf_counter()
    for name in names:
        os.unlink(name)
    return time.perf_counter() - begun


def small(setting):
    count = setting.amount(20_000, 2_000, 50)
    archive = setting.archive()
    members = len(run("tar", "-tf", archive).splitlines()) if archive else 0

    def measure(place, last):
        directory = place.at("many")
        made, names = fill(directory, count)
        place.remount()
        begun = time.perf_counter()
        found = os.listdir(directory)
        listed = time.perf_counter() - begun
        begun = time.perf_counter()
        for name in names:
            os.stat(name)
        asked = time.perf_counter() - begun
        if last:
            if sorted(found) != [os.path.basename(name) for name in names]:
                raise files.Differs(f"{directory}: names")
            for name in names[:: max(1, count // 1000)]:
                files.compare(name, memoryview(CONTENT))
        gone = delete(names)
        if os.listdir(directory):
            raise files.Differs(f"{directory} is not empty")
        result = {"create": count / made, "list": count / listed, "stat": count / asked, "delete": count / gone}
        if archive:
            begun = time.perf_counter()
            run("tar", "-xf", archive, "-C", place.path)
            result["untar"] = members / (time.perf_counter() - begun)
            if last:
                compare_tree(archive, place.path)
        return result

    return measure


def compare_tree(archive, directory):
    """Raises unless every file of an archive has the same bytes in a directory."""
    with tarfile.open(archive) as tree:
        for member in tree:
            if member.isfile():
                files.compare(os.path.join(directory, member.name), memoryview(tree.extractfile(member).read()))


def growth(many):
    tenth, beyond = many // 10, many // 100

    def each(work, names):
        """By two processes, because the time does not count."""

        def child(part):
            def run(ready):
                ready()
                work(part)

            return run

        in_children(child(names[::2]), child(names[1::2]))

    def measure(place, last):
        directory = place.at("many")
        _, names = fill(directory, beyond)
        names += [os.path.join(directory, f"file{number:06}") for number in range(beyond, many)]
        few, middle, more = names[beyond : beyond + tenth], names[beyond + tenth : -tenth], names[-tenth:]
        few_made = create(few)
        each(create, middle)
        more_made = create(more)
        more_gone = delete(more)
        each(delete, middle)
        few_gone = delete(few)
        if len(os.listdir(directory)) != beyond:
            raise files.Differs(f"{directory}: names")
        return {
            "few": tenth / few_made,
            "many": tenth / more_made,
            "growth": more_made / few_made,
            "delete_few": tenth / few_gone,
            "delete_many": tenth / more_gone,
            "delete_growth": more_gone / few_gone,
        }

    return measure
