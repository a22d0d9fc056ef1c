"""pg-transactional-outbox's polling listener, with kafkajs as the publisher."""
import os
import subprocess

from . import HERE, Rival, run


class Listener(Rival):
    name = "pg-transactional-outbox 0.5.7, polling"
    folder = "pg-transactional-outbox"
    tools = ("node", "npm")
    rows = 10_000
    rate = 100
    fill_sql = """insert into public.outbox (id, aggregate_type, aggregate_id, message_type, segment, payload)
                  select message_id, topic, key, 'event', key, payload::jsonb from outbox.message where id between %(from)s and %(upto)s order by id"""
    insert = """insert into public.outbox (id, aggregate_type, aggregate_id, message_type, segment, payload)
                values (gen_random_uuid(), $1, $2, 'event', $2, $3::jsonb) returning 0"""

    def build(self, folder):
        run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--omit=dev"], folder)

    def before_rows(self, db):
        made = subprocess.run(["node", "listener.js", "sql"], cwd=self.install(), check=True, capture_output=True, text=True)
        db.execute(made.stdout)

    def settings(self):
        return [HERE / self.folder / "listener.js"]

    def command(self, home, work, postgres, database, brokers, is_latency):
        return ["node", home / "listener.js", "run"], os.environ | {
            "PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "postgres", "PGDATABASE": database, "BENCH_BROKERS": brokers}
