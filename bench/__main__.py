"""The command: python -m bench [NAME...], as root."""
import argparse
import datetime
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

from bench import documents, engine, plot, render, workloads
from bench.device import Device, own_mounts, sweep_daemons, sweep_mounts
from bench.measure import Interrupts

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Workloads of a quick run; a smoke run has all of them.
QUICK = ("stream", "small", "netcdf", "hdf5", "shared", "read", "files", "memory", "settle")
DEVICE_MIB = {"full": 4096, "quick": 1024, "smoke": 512}


def arguments():
    parser = argparse.ArgumentParser(prog="bench", description="Measures ShaleFS beside its peers; needs root.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(workloads.NAMES)}")
    parser.add_argument("--scale", choices=("full", "quick", "smoke"), default="full", help="sizes and repetitions")
    parser.add_argument("--repetitions", type=int, help="instead of 3 (1 in a smoke run)")
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "bench"), help="where image and mounts are made")
    parser.add_argument("--cache", help="where data are kept from run to run (default: WORK/cache)")
    parser.add_argument("--results", default=os.path.join(ROOT, "bench", "results"), help="where results are written")
    parser.add_argument("--docs", metavar="JSON", help="only rewrite the generated parts of docs/performance.md and README.md from a result")
    options = parser.parse_args()
    unknown = set(options.names) - set(workloads.NAMES)
    if unknown:
        parser.error(f"what is {', '.join(sorted(unknown))}?")
    return options


BEGUN = time.perf_counter()


def say(text):
    text = f"{time.perf_counter() - BEGUN:5.0f} s  {text}" if text else ""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def measure(options, names):
    """Creates the device, runs the workloads, cleans up."""
    work = os.path.abspath(options.work)
    cache = os.path.abspath(options.cache or os.path.join(work, "cache"))
    scratch = os.path.join(work, "mounts")
    os.makedirs(scratch, exist_ok=True)
    os.makedirs(cache, exist_ok=True)
    binary = os.environ.get("SHALE_BIN", os.path.join(ROOT, "target", "release", "shale"))
    repetitions = options.repetitions or {"full": 3, "quick": 3, "smoke": 1}[options.scale]
    with ExitStack() as stack:
        lock = stack.enter_context(open(os.path.join(work, "lock"), "w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"bench: another run uses {work}")
        own_mounts()
        sweep_daemons(scratch)
        say("making the device")
        device = stack.enter_context(Device(work, DEVICE_MIB[options.scale] << 20))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.callback(sweep_mounts, scratch)
        setting = engine.Setting(options.scale, device, scratch, cache, binary, repetitions)
        begun = time.perf_counter()
        run = {
            "date": datetime.date.today().isoformat(),
            "scale": options.scale,
            "whole": not options.names,
            "repetitions": repetitions,
            "machine": engine.machine(setting),
            "absent": setting.absent,
            "throttle": engine.check_throttle(setting),
            "python": engine.check_python(scratch),
            "benches": {},
        }
        for name in names:
            run["benches"][name] = engine.measure(setting, name, say)
        run["seconds"] = time.perf_counter() - begun
        if sys.stderr.isatty():
            say("")
        return run


def write(run, directory, stem):
    """JSON, Markdown and plots of a run."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, stem + ".json"), "w") as file:
        json.dump({**run, "targets": render.judge(run)}, file, indent=1)
        file.write("\n")
    for name, title, rows, unit in render.plots(run):
        with open(os.path.join(directory, f"{stem}-{name}.svg"), "w") as file:
            file.write(plot.bars(title, unit, rows))
    with open(os.path.join(directory, stem + ".md"), "w") as file:
        file.write(documents.report(run, stem))


def main():
    options = arguments()
    if options.docs:
        with open(options.docs) as file:
            run = json.load(file)
        write(run, options.results, "latest")
        documents.refresh(run)
        return
    if os.geteuid() != 0:
        sys.exit("bench: needs root, to make loop devices and mounts")
    Interrupts.catch()
    names = options.names or (QUICK if options.scale == "quick" else workloads.NAMES)
    try:
        run = measure(options, names)
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench: {' '.join(error.cmd)}: {(error.stderr or '').strip() or error}")
    # The documents show only full runs.
    stem = "-".join(options.names) or {"full": "latest"}.get(options.scale, options.scale)
    write(run, options.results, stem)
    if stem == "latest":
        documents.refresh(run)
    if options.scale != "smoke":
        print(render.targets([verdict for verdict in render.judge(run) if verdict["value"] is not None]))
    print(f"\n{run['seconds']:.0f} s. All figures: {os.path.relpath(os.path.join(options.results, stem))}.md")


if __name__ == "__main__":
    main()
