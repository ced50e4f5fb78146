"""Very many small files."""
import os
import tarfile
import time

from bench import files, peers
from bench.measure import run
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


def fill(directory, count, windows=()):
    """Creates files; seconds, or those of each window of their numbers."""
    os.mkdir(directory)
    content = bytes(range(256)) * 4
    names = [os.path.join(directory, f"file{number:06}") for number in range(count)]

    def create(name):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, content)
        os.close(descriptor)

    return timed(create, names, windows), names, content


def delete(names, windows=()):
    return timed(os.unlink, names, windows)


def timed(work, names, windows):
    """Seconds of all, or of each window."""
    clock = time.perf_counter
    ends = sorted({0, len(names), *(end for window in windows for end in window)})
    passed = {0: clock()}
    for first, end in zip(ends, ends[1:]):
        for name in names[first:end]:
            work(name)
        passed[end] = clock()
    if windows:
        return [passed[end] - passed[first] for first, end in windows]
    return passed[len(names)] - passed[0]


def small(setting):
    count = setting.amount(20_000, 2_000, 50)
    archive = setting.archive()
    members = len(run("tar", "-tf", archive).splitlines()) if archive else 0

    def measure(place, last):
        directory = place.at("many")
        create, names, content = fill(directory, count)
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
                files.compare(name, content)
        gone = delete(names)
        if os.listdir(directory):
            raise files.Differs(f"{directory} is not empty")
        result = {"create": count / create, "list": count / listed, "stat": count / asked, "delete": count / gone}
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
    few_files, many_files = (beyond, beyond + tenth), (many - tenth, many)

    def measure(place, last):
        (few, more), names, _ = fill(place.at("many"), many, (few_files, many_files))
        names.reverse()
        from_the_end = [(many - end, many - first) for first, end in (few_files, many_files)]
        few_gone, more_gone = delete(names, from_the_end)
        if os.listdir(place.at("many")):
            raise files.Differs("files are left")
        return {
            "few": tenth / few,
            "many": tenth / more,
            "growth": more / few,
            "delete_few": tenth / few_gone,
            "delete_many": tenth / more_gone,
            "delete_growth": more_gone / few_gone,
        }

    return measure
