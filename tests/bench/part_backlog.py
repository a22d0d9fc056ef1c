"""Parts that need ten million rows: whether the drain stays as fast as the backlog grows, and how fast SQL answers then."""
import statistics
import time

from report import check, table
from stage import say, spread

MILLION = 1_000_000
GROWN, SETTLED = "grown", 10  # the database, and how many million rows of it have receipts


def drain_waiting(stage, rows):
    """A fresh copy with so many rows waiting."""
    name = f"waiting_{rows}"
    stage.seed(name, rows)
    stage.postgres.copy(name, "round")
    figures = stage.relay("round", rows)
    stage.postgres.drop("round")
    return figures


def drain_grown(stage):
    """Ten million rows waiting, drained; their receipts stay for what comes after."""
    stage.postgres.drop(GROWN)
    stage.seed(GROWN, SETTLED * stage.scaled(MILLION), per_transaction=1000)
    stage.postgres.warm(GROWN)
    return stage.relay(GROWN, SETTLED * stage.scaled(MILLION))


def add_million(stage, settled):
    rows = stage.scaled(MILLION)
    with stage.postgres.connect(GROWN) as db:
        stage.add_rows(db, rows, first=settled + 1)
        db.execute("analyze")
    return rows


def backlog(stage):
    million = stage.scaled(MILLION)
    stage.warm_up()
    out = {"tenth": [], "one": [], "behind": []}

    def note(name, figures):
        out[name].append(figures)
        say(f"  {name}: {figures['last_million_rate']:,.0f} messages/s")

    for _ in range(stage.options.rounds):
        note("one", drain_waiting(stage, million))
        note("tenth", drain_waiting(stage, max(1000, million // 10)))
    out["ten"] = []
    note("ten", drain_grown(stage))
    settled = SETTLED * million
    for _ in range(stage.options.rounds):
        rows = add_million(stage, settled)
        stage.postgres.warm(GROWN)
        note("behind", stage.relay(GROWN, rows, before=settled))
        settled += rows
    note("one", drain_waiting(stage, million))
    return {"million": million, **out}


NAMES = {"tenth": "0.1 million waiting", "one": "1 million waiting", "ten": "10 million waiting: the last million",
         "behind": "1 million waiting, 10 million and more settled"}


def rate(raw, name):
    return statistics.median(f["last_million_rate"] for f in raw[name])


def backlog_lines(raw):
    part = lambda name, of: spread([f["last_million_rate"] / rate(raw, of) for f in raw[name]])
    flat = [check(f"{NAMES[name]}: part of the rate with 0.1 million", part(name, "tenth"), "{:.2f}", at_least=0.95) for name in ("one", "ten", "behind")]
    # The smallest is over before all that works at it is busy.
    return flat + [check(f"{NAMES[name]}: part of the rate with one million", part(name, "one"), "{:.2f}") for name in ("tenth", "ten", "behind")]


def backlog_show(raw):
    lines = []
    for name, text in NAMES.items():
        rates = [f["last_million_rate"] for f in raw[name]]
        lines.append([text, f"{rate(raw, name):,.0f}", f"{min(rates):,.0f}–{max(rates):,.0f}", f"{statistics.median(f['client_cpu_us'] for f in raw[name]):.2f}",
                      f"{statistics.median(f['postgres_cpu_us'] for f in raw[name]):.2f}"])
    return ["From the first claim on; start-up would weigh on the small ones.", ""] + table(
        ["", "messages/s", "lowest–highest", "relay CPU, us", "PostgreSQL CPU, us"], lines)


# --- SQL, on ten million settled rows and one million that wait ---

PENDING = "(select max(id) from outbox.message)"
SETTLED_ROW = "(select min_id from outbox.settlement where min_id is not null order by id offset (select count(*) / 2 from outbox.batch) limit 1)"
QUERIES = [  # what, query, most ms
    ("status by id, settled", "select * from outbox.status where id = $1", SETTLED_ROW, 5),
    ("status by id, pending", "select * from outbox.status where id = $1", PENDING, 5),
    ("status by message_id, settled", "select * from outbox.status where message_id = $1",
     f"(select message_id from outbox.message where id = {SETTLED_ROW})", 5),
    ("status by message_id, pending", "select * from outbox.status where message_id = $1",
     f"(select message_id from outbox.message where id = {PENDING})", 5),
    *((f"status by state: {state}", f"select * from outbox.status where state = '{state}'", None, 5)
      for state in ("failed", "rejected", "held", "requesting", "delayed", "skipped")),
    ("status by state: pending, the first 100", "select * from outbox.status where state = 'pending' limit 100", None, 5),
    ("status by state: dispatched, the first 100", "select * from outbox.status where state = 'dispatched' limit 100", None, 5),
    ("backlog", "select * from outbox.backlog", None, 50),
    ("lag", "select * from outbox.lag", None, None),
    ("stuck", "select * from outbox.stuck", None, 50),
    ("receipt by partition and offset", "select * from outbox.receipt_at('orders', 3, 5000)", None, 5),
    ("dispatched by month", "select * from outbox.dispatched_by_month order by month, topic", None, 50),
]


def timed(db, query, value):
    """Milliseconds from sending to the last row; the first of six runs is not counted."""
    times = []
    for _ in range(6):
        start = time.monotonic()
        db.execute(query.replace("$1", "%s"), [value] if value is not None else None).fetchall()
        times.append(1000 * (time.monotonic() - start))
    return times[1:]


def ready_for_sql(stage):
    """The database of the backlog part, or one like it, with a million rows waiting behind the settled ones."""
    if not stage.postgres.exists(GROWN):
        drain_grown(stage)
    with stage.postgres.connect(GROWN) as db:
        settled, newest = db.execute("select (select sum(count) from outbox.settlement_topic)::bigint, (select max(id) from outbox.message)").fetchone()
    pending = newest - settled
    if pending < stage.scaled(MILLION):
        pending = add_million(stage, settled)
    with stage.postgres.connect(GROWN) as db:
        db.execute("vacuum (analyze)")
        db.execute("checkpoint")  # what was just written is not to be flushed beside the questions
    return settled, pending


def sql(stage):
    settled, pending = ready_for_sql(stage)
    found = []
    with stage.postgres.connect(GROWN) as db:
        for what, query, argument, most in QUERIES:
            value = db.execute(f"select {argument}").fetchone()[0] if argument else None
            found.append({"what": what, "query": query, "ms": timed(db, query, value), "most": most})
            say(f"  {what}: {statistics.median(found[-1]['ms']):.1f} ms")
    return {"settled": settled, "pending": pending, "queries": found}


def sql_lines(raw):
    return [check(f"SQL: {q['what']}, ms", spread(q["ms"]), "{:.1f}", at_most=q["most"]) for q in raw["queries"]]


def sql_show(raw):
    return [f"{raw['settled']:,} rows settled, {raw['pending']:,} waiting; five runs each, after one that does not count.", ""] + table(
        ["", "ms, median", "query"], [[q["what"], f"{statistics.median(q['ms']):.1f}", f"`{q['query']}`"] for q in raw["queries"]])
