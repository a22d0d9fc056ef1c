"""Puts a benchmark's figures into a JSON file and a Markdown table, with the machine they were taken on."""
import json
import os
import pathlib
import platform
import statistics
import subprocess

COLUMNS = [  # heading, side, figure, format
    ("raw pipe, messages/s", "pipe", "rate", "{:,.0f}"),
    ("relay, messages/s", "relay", "rate", "{:,.0f}"),
    ("ratio", None, "ratio", "{:.2f}"),
    ("relay's start-up, ms", "relay", "startup_ms", "{:.0f}"),
    ("relay CPU, us/message", "relay", "client_cpu_us", "{:.2f}"),
    ("peak memory, MiB", "relay", "peak_memory_mib", "{:.1f}"),
    ("dead tuples", "relay", "dead_tuples", "{:,.0f}"),
    ("WAL, bytes/message", "relay", "wal_bytes", "{:.1f}"),
]
CPU_COLUMNS = [
    ("client", "client_cpu_us", "{:.2f}"),
    ("PostgreSQL", "postgres_cpu_us", "{:.2f}"),
    ("Kafka", "kafka_cpu_us", "{:.2f}"),
    ("of the machine, used by others", "others_percent", "{:.0f} %"),
]
LATENCIES = [
    ("commit → consumer has it", "commit_to_consumer_ms"),
    ("commit → receipt", "commit_to_receipt_ms"),
    ("due → commit (the writer's own)", "due_to_commit_ms"),
]


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def machine(postgres, kafka_jars, binary):
    """What the figures were taken on."""
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "postgresql": postgres.version(),
        "kafka": next((jar.stem.split("-")[-1] for jar in pathlib.Path(kafka_jars).glob("kafka-clients-*.jar")), "unknown"),
        "java": first_line(["java", "--version"]),
        "denpyo": first_line([binary, "version"]) if binary else "not run",
        "commit": first_line(["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"]),
    }


def value(round_figures, side, figure):
    holder = round_figures if side is None else round_figures.get(side)
    return None if holder is None else holder.get(figure)


def cell(values, pattern):
    known = [v for v in values if v is not None]
    return pattern.format(statistics.median(known)) if known else "–"


def rate_table(rounds):
    lines = ["| round | " + " | ".join(c[0] for c in COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    named = [(str(i + 1), [r]) for i, r in enumerate(rounds)]
    if len(rounds) > 1:
        named.append(("**median**", rounds))
    for name, members in named:
        cells = [cell([value(r, side, figure) for r in members], pattern) for _, side, figure, pattern in COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def cpu_table(rounds):
    lines = ["| CPU, us/message, median | " + " | ".join(c[0] for c in CPU_COLUMNS) + " |",
             "|---|" + "---:|" * len(CPU_COLUMNS)]
    for name, side in (("raw pipe", "pipe"), ("relay", "relay")):
        cells = [cell([value(r, side, figure) for r in rounds], pattern) for _, figure, pattern in CPU_COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def latency_table(figures):
    lines = [f"{figures['rows']:,} rows at {figures['rows_per_second']:,.0f} a second, one a transaction; "
             f"the relay used {figures['relay_cpu_percent']:.0f} % of a core.", "",
             "| ms | p50 | p99 | max |", "|---|---:|---:|---:|"]
    for name, key in LATENCIES:
        f = figures[key]
        lines.append(f"| {name} | {f['p50']:.1f} | {f['p99']:.1f} | {f['max']:.1f} |")
    return lines


def markdown(result):
    """The whole result as a page."""
    m = result["machine"]
    lines = ["# Benchmark", "",
             f"{m['cores']} cores of {m['cpu']}, {m['memory_gib']} GiB, Linux {m['kernel']}; PostgreSQL {m['postgresql']}, "
             f"Kafka {m['kafka']}, {m['java']}; {m['denpyo']}, commit {m['commit']}; load before: {m['load_before']}.", ""]
    if result["rounds"]:
        lines += [f"## Draining {result['rows']:,} rows", "", *rate_table(result["rounds"]), "",
                  *cpu_table(result["rounds"]), ""]
    if result["latency"]:
        lines += ["## Latency", "", *latency_table(result["latency"]), ""]
    return "\n".join(lines)


def write(result, folder):
    """Writes results.json and results.md into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    (folder / "results.md").write_text(markdown(result))
