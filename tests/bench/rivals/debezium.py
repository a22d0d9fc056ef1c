"""Debezium's outbox event router on a standalone Kafka Connect, reading the WAL."""
import os
import pathlib
import socket

from . import HERE, Rival, run

SLOT = "bench"


class Debezium(Rival):
    name = "Debezium 3.6.1 on Kafka Connect 4.1.1"
    folder = "debezium-connect"
    tools = ("java", "mvn")
    table_sql = f"""
        create table rival_outbox (id uuid primary key, aggregatetype text not null, aggregateid text not null, type text not null, payload text);
        create publication {SLOT} for table rival_outbox with (publish = 'insert')"""
    fill_sql = """insert into rival_outbox select message_id, topic, key, 'event', payload from outbox.message
                  where id between %(from)s and %(upto)s order by id"""
    insert = "insert into rival_outbox values (gen_random_uuid(), $1, $2, 'event', $3) returning 0"

    def build(self, folder):
        run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}/libs"], folder)

    def before_rows(self, db):
        self.after_run(db)
        db.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")

    def after_run(self, db):
        db.execute(f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{SLOT}' and not active")

    def settings(self):
        return [HERE / self.folder / name for name in ("worker.properties", "connector.properties", "drain.properties", "latency.properties")]

    def command(self, home, work, postgres, database, brokers, is_latency):
        with socket.create_server(("127.0.0.1", 0)) as holder:
            rest = holder.getsockname()[1]
        known = {"brokers": brokers, "port": postgres.port, "database": database, "work": work, "rest": rest}
        tuned = (home / ("latency.properties" if is_latency else "drain.properties")).read_text()
        for name in ("worker", "connector"):
            text = (home / f"{name}.properties").read_text()
            own = "\n".join(line.removeprefix(f"{name}:") for line in tuned.splitlines() if line.startswith(f"{name}:"))
            for word, value in known.items():
                text = text.replace(f"@{word}@", str(value))
            pathlib.Path(work, f"{name}.properties").write_text(f"{text}\n{own}\n")
        return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseParallelGC", "-cp", f"{home}/libs/*", "org.apache.kafka.connect.cli.ConnectStandalone",
                f"{work}/worker.properties", f"{work}/connector.properties"], dict(os.environ)
