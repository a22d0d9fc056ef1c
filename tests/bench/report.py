"""Puts a benchmark's figures into a JSON file and a Markdown page, with the machine they were taken on."""
import json
import os
import pathlib
import platform
import statistics
import subprocess


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def machine(kafka_jars, binary, postgres_version):
    """What the figures were taken on."""
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "postgresql": postgres_version,
        "kafka": next((jar.stem.split("-")[-1] for jar in pathlib.Path(kafka_jars).glob("kafka-clients-*.jar")), "unknown"),
        "java": first_line(["java", "--version"]),
        "denpyo": first_line([binary, "version"]),
        "commit": first_line(["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"]),
    }


# --- building blocks for the parts ---


def table(headings, rows):
    """A Markdown table whose first column is text."""
    return ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1), *("| " + " | ".join(row) + " |" for row in rows)]


def cell(values, pattern):
    """The median, and from where to where when there are several."""
    known = [v for v in values if v is not None]
    if not known:
        return "–"
    text = pattern.format(statistics.median(known))
    low, high = pattern.format(min(known)), pattern.format(max(known))
    return text if low == high else f"{text} ({low}–{high})"


def cells(rounds, side, figures):
    return [cell([r[side].get(figure) for r in rounds], pattern) for figure, pattern in figures]


def check(what, spread, pattern, at_least=None, at_most=None):
    """One line of the table of targets; a figure without a target is only told."""
    met = None
    if at_least is not None:
        met = spread["median"] >= at_least
    if at_most is not None:
        met = spread["median"] <= at_most
    target = f"≥ {at_least}" if at_least is not None else f"≤ {at_most}" if at_most is not None else ""
    return {"what": what, "figure": cell(spread["all"], pattern), "target": target, "met": met, "median": spread["median"]}


# --- the page ---


def markdown(results, parts):
    """All parts that have results, whenever they were run."""
    m = results["machine"]
    lines = ["# Benchmark", "",
             f"{m['cores']} cores of {m['cpu']}, {m['memory_gib']} GiB, Linux {m['kernel']}; PostgreSQL {m['postgresql']}, "
             f"Kafka {m['kafka']}, {m['java']}; {m['denpyo']}.", "", "Figures are medians, in brackets the lowest and the highest round.", "",
             "## Against the targets", ""]
    done = [(name, part, results["parts"][name]) for name, part in parts.items() if name in results["parts"]]
    rows = [[line["what"], line["figure"], line["target"], {True: "yes", False: "**no**", None: ""}[line["met"]]]
            for _, part, result in done for line in part.lines(result["raw"])]
    lines += table(["", "here", "target", "met"], rows)
    for name, part, result in done:
        lines += ["", f"## {part.title}", "",
                  f"`tests/bench/run --only {name}`, {result['at']}, {result['seconds']:.0f} s, commit {result['commit']}, "
                  f"load before: {result['load_before']}."
                  + (f" Relay arguments: `{' '.join(result['arguments'])}`." if result["arguments"] else ""), "", *part.show(result["raw"])]
    return "\n".join(lines) + "\n"


def is_readable(part, raw):
    """Whether the figures are of the kind that the part takes now."""
    try:
        return bool(part.lines(raw)) and bool(part.show(raw))
    except (KeyError, IndexError):
        return False


def load(folder, parts):
    """What earlier runs left in `folder`."""
    path = folder / "results.json"
    if not path.exists():
        return {"machine": None, "parts": {}}
    results = json.loads(path.read_text())
    old = [name for name, result in results["parts"].items() if name not in parts or not is_readable(parts[name], result["raw"])]
    for name in old:
        print(f"{name}: figures of an older kind are left out")
        del results["parts"][name]
    return results


def write(results, folder, parts):
    """Writes results.json and results.md into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "results.json.new"
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.rename(folder / "results.json")
    (folder / "results.md").write_text(markdown(results, parts))
