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
    "deleted. Untar: Python's own library from an archive in memory. Growth: how much longer a file takes, on "
    "average, when many are created in (or deleted from) one directory, than when few are; 1 is linear."
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
    few, many = setting.amount((1000, 100_000), (500, 5_000), (50, 100))
    return [
        *per_peer(setting, setting.some(wide, (peers.BINDFS, peers.SHALE)), small(setting), f"{setting.amount(20_000, 2_000, 50)} files"),
        *per_peer(setting, setting.some((peers.EXT4, peers.SHALE), (peers.SHALE,)), growth(few, many), f"{few} and {many} files"),
    ]


def fill(directory, count):
    """Creates files; seconds."""
    os.mkdir(directory)
    content = bytes(range(256)) * 4
    names = [os.path.join(directory, f"file{number:06}") for number in range(count)]
    begun = time.perf_counter()
    for name in names:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, content)
        os.close(descriptor)
    return time.perf_counter() - begun, names, content


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


def growth(few, many):
    def measure(place, last):
        first, names, _ = fill(place.at("few"), few)
        first_gone = delete(names)
        second, names, _ = fill(place.at("many"), many)
        second_gone = delete(names)
        if os.listdir(place.at("many")):
            raise files.Differs("files are left")
        return {
            "few": few / first,
            "many": many / second,
            "growth": (second / many) / (first / few),
            "delete_few": few / first_gone,
            "delete_many": many / second_gone,
            "delete_growth": (second_gone / many) / (first_gone / few),
        }

    return measure
