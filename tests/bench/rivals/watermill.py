"""watermill-sql's forwarder, which polls a table of its own and keeps one offset."""
import os

from . import HERE, Rival, run

ENVELOPE = """json_build_object('destination_topic', {topic}, 'uuid', gen_random_uuid(), 'metadata', json_build_object('key', {key}),
    'payload', translate(encode(convert_to({payload}, 'UTF8'), 'base64'), E'\\n', ''))"""


class Watermill(Rival):
    name = "watermill-sql 4.1.2, forwarder"
    folder = "watermill-forwarder"
    tools = ("go",)
    rows = 200_000
    # As the library itself makes it (DefaultPostgreSQLSchema).
    table_sql = """create table watermill_outbox ("offset" bigserial, uuid varchar(36) not null, created_at timestamp not null default current_timestamp,
        payload json, metadata json, transaction_id xid8 not null, primary key (transaction_id, "offset"))"""
    fill_sql = ("insert into watermill_outbox (uuid, payload, metadata, transaction_id) select message_id::text, "
                + ENVELOPE.format(topic="topic", key="key", payload="payload")
                + ", '{}', pg_current_xact_id() from outbox.message where id between %(from)s and %(upto)s order by id")
    insert = ("insert into watermill_outbox (uuid, payload, metadata, transaction_id) values (gen_random_uuid()::text, "
              + ENVELOPE.format(topic="$1::text", key="$2::text", payload="$3::text") + ", '{}', pg_current_xact_id()) returning 0")

    def build(self, folder):
        run(["go", "build", "-o", "forwarder", "."], folder)

    def settings(self):
        return [HERE / self.folder / "main.go"]

    def command(self, home, work, postgres, database, brokers, is_latency):
        return [home / "forwarder"], os.environ | {"BENCH_POSTGRES": postgres.conninfo(database), "BENCH_BROKERS": brokers}
