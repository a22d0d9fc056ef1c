"""Parts that drain a backlog: against the raw pipe, in exactly-once mode, past held snapshots, by size, by topics and keys."""
import contextlib
import statistics

import pipe
from report import cells, check, table
from stage import TOPIC, say, spread

MILLION = 1_000_000
EXACTLY_ONCE = ["--delivery", "exactly_once", "--transactional-id", "bench"]


def rows_to_drain(stage):
    return stage.options.rows or stage.scaled(200_000 if stage.options.quick else MILLION)


def rounds(stage, sides, database="seeded"):
    """Each side once a round on one fresh copy, in alternating order; sides: {name: measure(database)}."""
    out = []
    for number in range(stage.options.rounds):
        figures = {}
        for name in sides if number % 2 == 0 else reversed(sides):
            stage.postgres.copy(database, "round")  # of its own: what one side wrote must not be there for the next
            figures[name] = sides[name]("round")
            say(f"  round {number + 1}: {name} {figures[name]['rate']:,.0f} messages/s")
        stage.postgres.drop("round")
        out.append(figures)
    return out


def ratios(found, side, other):
    """Of the two sides' rates, in each round."""
    return spread([r[side]["rate"] / r[other]["rate"] for r in found])


def of(found, side, figure):
    return spread([r[side][figure] for r in found])


# --- the plain drain ---


def drain(stage):
    rows = rows_to_drain(stage)
    stage.seed("seeded" if rows != stage.options.rows else f"seeded_{rows}", rows)
    database = "seeded" if rows != stage.options.rows else f"seeded_{rows}"
    stage.warm_up()
    found = rounds(stage, {
        "pipe": lambda copy: stage.pipe(copy, rows),
        "relay": lambda copy: stage.relay(copy, rows),
        "copy": lambda copy: pipe.run_copy(stage.postgres, stage.kafka, copy, rows),
    }, database)
    return {"rows": rows, "rounds": found}


def drain_lines(raw):
    found = raw["rounds"]
    reading = spread([r["relay"]["claim_backend_us"] / r["copy"]["postgres_cpu_us"] for r in found])
    return [
        check("drain: part of the raw pipe's rate", ratios(found, "relay", "pipe"), "{:.2f}", at_least=0.7),
        check("drain: relay CPU, us/message", of(found, "relay", "client_cpu_us"), "{:.2f}", at_most=3.5),
        check("drain: relay's memory, MiB", of(found, "relay", "peak_memory_mib"), "{:.1f}", at_most=64),
        check("drain: WAL, bytes/message", of(found, "relay", "wal_bytes"), "{:.1f}", at_most=40),
        check("drain: dead tuples", of(found, "relay", "dead_tuples"), "{:,.0f}", at_most=0),
        check("drain: PostgreSQL's CPU for reading and claiming, times a plain COPY's", reading, "{:.2f}", at_most=1.5),
    ]


def drain_show(raw):
    found = raw["rounds"]
    lines = [f"{raw['rows']:,} rows.", ""]
    lines += table(["", "messages/s", "from the first claim on", "client CPU, us", "PostgreSQL CPU, us", "Kafka CPU, us", "used by others, %"],
                   [[name, *cells(found, name, [("rate", "{:,.0f}"), ("warm_rate", "{:,.0f}"), ("client_cpu_us", "{:.2f}"),
                                                 ("postgres_cpu_us", "{:.2f}"), ("kafka_cpu_us", "{:.2f}"), ("others_percent", "{:.0f}")])]
                    for name in ("pipe", "relay", "copy")])
    one = [("startup_ms", "{:.0f}"), ("batches", "{:,.0f}"), ("rows_updated_or_deleted", "{:,.0f}"), ("claim_backend_us", "{:.2f}"),
           ("settle_backend_us", "{:.2f}")]
    start, batches, changed, claim, settle = cells(found, "relay", one)
    return lines + ["", f"The relay's first claim came after {start} ms; {batches} batches; rows updated or deleted, but for the lease: {changed}. Of PostgreSQL's "
                    f"CPU its claiming connection took {claim} us a message, its settling one {settle}."]


# --- exactly once ---


def exactly_once(stage):
    rows = rows_to_drain(stage)
    stage.warm_up()
    # The broker's transactions want to be warm, too; a drain has too few of them for its compiler.
    late = stage.latency(1_000_000, 1000 * stage.options.seconds, 2000, EXACTLY_ONCE)
    stage.until_warm(lambda: stage.relay("warm_up", rows, EXACTLY_ONCE)["kafka_cpu_us"])
    found = rounds(stage, {
        "at_least_once": lambda copy: stage.relay(copy, rows),
        "exactly_once": lambda copy: stage.relay(copy, rows, EXACTLY_ONCE),
    })
    return {"rows": rows, "rounds": found, "latency": [late]}


def exactly_once_lines(raw):
    return [check("exactly once: part of at least once", ratios(raw["rounds"], "exactly_once", "at_least_once"), "{:.2f}", at_least=0.85)]


def exactly_once_show(raw):
    names = ("at_least_once", "exactly_once")
    lines = table(["", "messages/s", "relay CPU, us", "Kafka CPU, us"],
                  [[n.replace("_", " "), *cells(raw["rounds"], n, [("rate", "{:,.0f}"), ("client_cpu_us", "{:.2f}"), ("kafka_cpu_us", "{:.2f}")])]
                   for n in names])
    late = [late["commit_to_consumer_ms"] for late in raw["latency"]]
    return lines + ["", "Commit → a read_committed consumer has it, 1,000 a second: "
                    + ", ".join(f"p50 {one['p50']:.1f} ms, p99 {one['p99']:.1f} ms" for one in late) + "."]


# --- while somebody holds a snapshot ---


@contextlib.contextmanager
def held(stage, statement):
    """A session that stays in its transaction until the end."""
    with stage.postgres.connect("postgres") as db:
        db.execute(statement)
        db.execute("select pg_current_xact_id()" if "isolation" not in statement else "select count(*) from pg_class")
        yield
        db.execute("rollback")


def held_relay(stage, copy, rows, statement):
    with held(stage, statement):
        return stage.relay(copy, rows)


def snapshot(stage):
    rows = rows_to_drain(stage)
    stage.warm_up()
    found = rounds(stage, {
        "plain": lambda copy: stage.relay(copy, rows),
        "open_transaction": lambda copy: held_relay(stage, copy, rows, "begin"),
        "repeatable_read": lambda copy: held_relay(stage, copy, rows, "begin isolation level repeatable read"),
    })
    return {"rows": rows, "rounds": found}


def snapshot_lines(raw):
    return [check(f"held snapshot: {name.replace('_', ' ')}, part of the plain drain", ratios(raw["rounds"], name, "plain"), "{:.2f}",
                  at_least=0.95) for name in ("open_transaction", "repeatable_read")]


def snapshot_show(raw):
    return table(["held throughout", "messages/s"],
                 [[n.replace("_", " "), *cells(raw["rounds"], n, [("rate", "{:,.0f}")])] for n in ("plain", "open_transaction", "repeatable_read")])


# --- sizes ---

SIZES = [(100, MILLION), (1_000, 300_000), (10_000, 30_000), (100_000, 3_000), (1_000_000, 300)]  # bytes, rows


def sizes(stage):
    out = []
    stage.warm_up()
    for size, rows in SIZES:
        rows = max(100, round(rows * stage.options.scale))
        database = f"size_{size}"
        stage.seed(database, rows, size=size)
        found = rounds(stage, {
            "pipe": lambda copy, rows=rows: stage.pipe(copy, rows, ["-X", "message.max.bytes=1048588"]),
            "relay": lambda copy, rows=rows: stage.relay(copy, rows),
        }, database)
        stage.postgres.drop(database)
        out.append({"size": size, "rows": rows, "rounds": found})
    return {"sizes": out}


def sizes_lines(raw):
    return [check(f"{one['size']:,} B: relay's memory, MiB", of(one["rounds"], "relay", "peak_memory_mib"), "{:.0f}", at_most=256)
            for one in raw["sizes"]]


def sizes_show(raw):
    lines = []
    for one in raw["sizes"]:
        megabytes = {s: statistics.median(r[s]["rate"] for r in one["rounds"]) * one["size"] / 1e6 for s in ("pipe", "relay")}
        ratio = ratios(one["rounds"], "relay", "pipe")
        lines.append([f"{one['size']:,}", f"{one['rows']:,}", f"{megabytes['pipe']:,.0f}", f"{megabytes['relay']:,.0f}", f"{ratio['median']:.2f}",
                      *cells(one["rounds"], "relay", [("peak_memory_mib", "{:.0f}"), ("client_cpu_us", "{:.1f}")])])
    return table(["bytes", "rows", "pipe, MB/s", "relay, MB/s", "ratio", "relay's memory, MiB", "relay CPU, us"], lines)


# --- many topics, one hot key ---

FIRST_RECORDS = 20  # of a topic: more than log.index.interval.bytes


def add_and_drain(stage, database, rows, count, before):
    """So many more rows over all topics, on top of those that have receipts, in the state of a fresh copy; then the drain."""
    with stage.postgres.connect(database) as db:
        stage.add_rows(db, rows, first=before + 1, topics=count)
        db.execute("vacuum (analyze)")
    stage.postgres.warm(database)
    return stage.relay(database, rows, topics=count, before=before)


def first_records(stage, database, count):
    """The topics are made, and get their first records by themselves, in two drains: with a partition's second batch the broker touches
    its index files for the first time, which takes it milliseconds of page faults, whoever sends. How long; rows so far."""
    few = count * FIRST_RECORDS
    drains = [stage.relay(database, few, topics=count), add_and_drain(stage, database, few, count, few)]
    return sum(one["seconds"] for one in drains), 2 * few


def topics(stage):
    """Topics are made once, and live for all rounds: each round sends its rows behind those of the rounds before."""
    rows, count = stage.scaled(1_000_000), 1000
    stage.warm_up()
    stage.seed("many_topics", count * FIRST_RECORDS, topics=count)
    stage.seed("one_key", rows, keys=1)
    first_s, sent = first_records(stage, "many_topics", count)
    out = []
    for number in range(stage.options.rounds):
        figures = {}
        for name in ("plain", "many_topics", "one_key"):
            if name == "many_topics":
                figures[name] = add_and_drain(stage, name, rows, count, sent)
                sent += rows
            else:
                stage.postgres.copy("seeded" if name == "plain" else name, "round")
                figures[name] = stage.relay("round", rows)
            say(f"  round {number + 1}: {name} {figures[name]['rate']:,.0f} messages/s")
        out.append(figures)
    for database in ("round", "many_topics", "one_key"):
        stage.postgres.drop(database)
    stage.kafka.delete_topics([f"{TOPIC}-{n}" for n in range(count)])
    return {"rows": rows, "first_records_s": first_s, "rounds": out}


def topics_lines(raw):
    return [check(f"{name.replace('_', ' ')}: part of the plain drain", ratios(raw["rounds"], name, "plain"), "{:.2f}", at_least=0.5)
            for name in ("many_topics", "one_key")]


def topics_show(raw):
    names = {"plain": "one topic, 8 partitions, 100,000 keys", "many_topics": "1,000 topics of one partition", "one_key": "one key"}
    return [f"{raw['rows']:,} rows. The 1,000 topics live for all rounds; the first {2 * FIRST_RECORDS} records of each went before, in "
            f"{raw['first_records_s']:.1f} s.", ""] + table(
        ["", "messages/s", "relay CPU, us", "Kafka CPU, us", "memory, MiB"],
        [[text, *cells(raw["rounds"], n, [("rate", "{:,.0f}"), ("client_cpu_us", "{:.2f}"), ("kafka_cpu_us", "{:.2f}"), ("peak_memory_mib", "{:.0f}")])]
         for n, text in names.items()])
