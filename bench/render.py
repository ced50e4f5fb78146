"""Results as Markdown: the targets, then a table for each workload, device and variant."""
from bench import peers, workloads
from bench.stats import Sample, ratio
from bench.targets import judge

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
DEVICES = {"free": "unthrottled", "throttled": "200 MB/s each way"}
#: Pictures: file name, workload, device, variant, metric, title.
PLOTS = (
    ("stream-durable", "stream", "free", "", "durable", "1 MiB writes until durable, unthrottled"),
    ("stream-durable-throttled", "stream", "throttled", "", "durable", "1 MiB writes until durable, 200 MB/s"),
    ("read-throttled", "stream", "throttled", "", "cold", "Cold sequential read, 200 MB/s"),
    ("shared-50-throttled", "shared", "throttled", "random-50", "durable", "Four writers, half random, 200 MB/s"),
    ("hdf5-throttled", "hdf5", "throttled", "", "durable", "HDF5 and applications that compress, 200 MB/s"),
)


def number(value):
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def cell(metric, sample, base):
    """A ratio to the base, then the median and the range."""
    if sample is None:
        return ""
    text = number(sample.median)
    if len(sample.values) > 1 and number(sample.low) != number(sample.high):
        text += f" ({number(sample.low)}–{number(sample.high)})"
    share = ratio(sample, base) if metric.unit else None
    return text if share is None else f"**{share:.2f}** · {text}"


def heading(metric):
    arrow = {1: " ↑", -1: " ↓", 0: ""}[metric.better]
    return metric.title + (f", {metric.unit}" if metric.unit else "") + arrow


def behind(metrics, rows, own):
    """All figures in which a peer beats a default ShaleFS mount."""
    parts = []
    mine = rows.get(own)
    if mine is None or all(row["peer"].startswith("shale") for row in rows.values()):
        return ""
    for name, metric in metrics.items():
        if name not in mine["figures"] or metric.better == 0:
            continue
        own = Sample(tuple(mine["figures"][name])).median
        better = []
        for row in rows.values():
            if row["peer"].startswith("shale") or name not in row["figures"]:
                continue
            other = Sample(tuple(row["figures"][name])).median
            if (other - own) * metric.better > 0:
                better.append(f"{row['label']} ({number(own / other) if other else '-'})")
        if better:
            parts.append(f"{metric.title}: {', '.join(better)}")
    return "Behind, as ratio to the better one: " + "; ".join(parts) + "." if parts else "Not behind any peer."


def daemon(rows, own, budget):
    row = rows.get(own)
    if row is None or "peak" not in row or "peak" in row["figures"]:
        return ""
    cpu = Sample(tuple(row["daemon_cpu"]))
    return (
        f"The daemon: at most {row['peak'] / 2**20:.0f} MiB resident (budget {budget >> 20} MiB), "
        f"{cpu.median:.2f} s of CPU in a repetition."
    )


def base_of(module, rows, key):
    name = module.base(key) if hasattr(module, "base") else peers.EXT4
    row = rows.get(name)
    return row["figures"] if row else {}


def workload(name, result, run):
    module = workloads.load(name)
    own = getattr(module, "OWN", peers.SHALE)
    lines = [f"### {module.TITLE}", "", module.TEXT, ""]
    for device, variants in result["devices"].items():
        for variant, rows in variants.items():
            metrics = {
                key: metric
                for key, metric in module.METRICS.items()
                if any(key in row["figures"] for row in rows.values())
            }
            lines += [f"**{DEVICES[device]}{', ' + variant if variant else ''}**", ""]
            body = []
            for key, row in rows.items():
                base = base_of(module, rows, key)
                body.append(
                    [row["label"]]
                    + [
                        cell(metric, sample(row["figures"].get(figure)), sample(base.get(figure)))
                        for figure, metric in metrics.items()
                    ]
                )
            lines += [table([""] + [heading(metric) for metric in metrics.values()], body), ""]
            lines += [text + "\n" for text in (behind(metrics, rows, own), daemon(rows, own, run["machine"]["budget"])) if text]
    for extra in result["tables"]:
        lines += [f"**{extra['title']}**", "", table(extra["header"], extra["rows"]), ""]
        if extra["note"]:
            lines += [extra["note"], ""]
    for label, reason in result["absent"].items():
        lines += [f"Not measured: {label}: {reason}.", ""]
    return "\n".join(lines)


def sample(values):
    return Sample(tuple(values)) if values else None


def targets(verdicts):
    rows = []
    for verdict in verdicts:
        words = {"sign": "≥" if verdict["sign"] == ">=" else "≤", None: "not measured", True: "yes", False: "**no**"}
        rows.append(
            [
                verdict["text"],
                f"{words['sign']} {number(verdict['asked'])}",
                "" if verdict["value"] is None else number(verdict["value"]),
                words[verdict["reached"]],
                "" if verdict["direct"] is None else number(verdict["direct"]),
            ]
        )
    return table(["figure", "asked", "reached", "", "with direct_io"], rows)


def summary(run):
    machine, throttle, python = run["machine"], run["throttle"], run["python"]
    scale = {
        "full": "A full run",
        "quick": "A quick run (small sizes and fewer workloads: read it as a hint)",
        "smoke": "A smoke run (tiny sizes: the figures mean nothing)",
    }
    text = (
        f"{scale[run['scale']]} of `make bench` on {run['date']}: {machine['shale']}, Linux {machine['kernel']}, "
        f"{machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB of memory; load when it began: "
        f"{machine['load']:.1f}. It took {run['seconds'] / 60:.0f} minutes.\n\n"
        f"All peers use the same loop device in turn, freshly formatted for each of {run['repetitions']} "
        "interleaved repetitions. A cell is **ratio to ext4** · median (range); ↑ more is better, ↓ less is better. "
        "What was written is compared with what is read in the last repetition. "
    )
    if not machine["direct_loop"]:
        text += "The loop device goes through the host's page cache here, because direct I/O was refused. "
    if "fault" in throttle:
        text += f"**Nothing was measured on a throttled device:** {throttle['fault']}.\n"
    else:
        found = ", ".join(f"{name} {speed:.0f}" for name, speed in throttle.items())
        text += f"The throttle, checked before the run, in MB/s: {found}.\n"
    text += f"\nPython writes 8 KiB pieces to memory at {python['python']:.0f} MB/s, dd at {python['dd']:.0f}.\n"
    for label, reason in run["absent"].items():
        text += f"\nNot measured: {label}: {reason}.\n"
    return text


def markdown(run, pictures):
    """`pictures`: (title, address) of plots. A run of single workloads shows only their targets."""
    verdicts = [verdict for verdict in judge(run) if verdict["value"] is not None or run["whole"]]
    parts = [summary(run), "### Asked and reached", "", targets(verdicts), ""]
    for title, address in pictures:
        parts += [f"![{title}]({address})", ""]
    parts += [workload(name, result, run) for name, result in run["benches"].items()]
    return "\n".join(parts).rstrip() + "\n"


def plots(run):
    """(file name, title, rows, unit) of every plot this run has figures for."""
    for name, bench, device, variant, metric, title in PLOTS:
        rows = run["benches"].get(bench, {}).get("devices", {}).get(device, {}).get(variant)
        if rows:
            unit = workloads.load(bench).METRICS[metric].unit
            yield name, title, [(row["label"], row["peer"], sample(row["figures"][metric])) for row in rows.values() if row["figures"].get(metric)], unit


def replace(document, section):
    """A document with everything between the markers replaced."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} and {END} in the document")
    return f"{before}{BEGIN}\n\n{section}\n{END}{after}"
