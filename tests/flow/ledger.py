"""Writes the relay's ledger in SQL, so that a test of the schema can put every row where it wants it, without a relay."""


class Ledger:
    """What a relay named `name` would write on `connection` (autocommit): claims, settlements, parked rows."""

    def __init__(self, connection, name="default"):
        self.connection = connection
        self.name = name
        self.sql("insert into outbox.relay (name, epoch) values (%s, 1)", name)

    def sql(self, query, *params):
        cursor = self.connection.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    def cursor(self):
        """(batch id, window_from, window_to, upto_id, last_page) of the newest batch."""
        rows = self.sql("select id, window_from::text, window_to::text, upto_id, last_page from outbox.batch"
                        " where relay = %s order by id desc limit 1", self.name)
        return rows[0] if rows else (0, None, "1:1:", 0, True)

    def claim(self, limit):
        """Opens a batch of the next page; its id, or None when nothing is new."""
        newest, from_, to, after, last = self.cursor()
        if last:
            from_, to, after = to, self.sql("select pg_current_snapshot()::text")[0][0], 0
        page = [row for (row,) in self.sql(
            "select id from outbox.message where id > %s and not pg_visible_in_snapshot(xid, %s)"
            " and pg_visible_in_snapshot(xid, %s) order by id limit %s", after, from_, to, limit + 1)]
        if not page:
            return None
        ids = page[:limit]
        self._insert_batch(newest + 1, from_, to, after, ids[-1], len(ids), len(page) <= limit, None)
        return newest + 1

    def claim_all(self):
        """Opens a batch of all that is new, as one page; its id."""
        newest, _, to, _, last = self.cursor()
        assert last, "a window is not finished"
        ((now, upto),) = self.sql("select pg_current_snapshot()::text, max(id) from outbox.message")
        self._insert_batch(newest + 1, to, now, 0, upto, 1, True, None)
        return newest + 1

    def retry(self, ids):
        """Opens a batch of parked rows; its window columns repeat the cursor."""
        newest, from_, to, after, last = self.cursor()
        self._insert_batch(newest + 1, from_ or "1:1:", to, after, after, len(ids), last, ids)
        return newest + 1

    def _insert_batch(self, batch, from_, to, after, upto, count, last, parked):
        self.sql("insert into outbox.batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count,"
                 " last_page, parked_ids, topic_names, partition_counts)"
                 " values (%s, %s, 1, %s, %s, %s, %s, %s, %s, %s, '{}', '{}')",
                 self.name, batch, from_, to, after, upto, count, last, parked)

    def rows_of(self, batch):
        """The ids of the rows of a batch, by the definition of a page."""
        return [row for (row,) in self.sql(
            "select m.id from outbox.batch b join outbox.message m on m.id = any (b.parked_ids) or b.parked_ids is null"
            " and m.id > b.after_id and m.id <= b.upto_id and pg_visible_in_snapshot(m.xid, b.window_to)"
            " and (m.xid >= pg_snapshot_xmax(b.window_from)"
            "      or m.xid in (select pg_snapshot_xip(b.window_from)))"
            " where b.relay = %s and b.id = %s order by m.id", self.name, batch)]

    def settle(self, batch, dispatched=None, parked=None, at=None, ranged=None):
        """Closes a batch: receipts of the ids in `dispatched` (None: all), parks the others (id -> state, or in ranges)."""
        dispatched = self.rows_of(batch) if dispatched is None else dispatched
        with self.connection.transaction():
            self.sql("with m as (select * from outbox.message where id = any (%s)),"
                     " t as (select array_agg(distinct topic order by topic) as names from m)"
                     " insert into outbox.settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets,"
                     "                                min_id, max_id, settled_at)"
                     " select %s, %s, coalesce((select names from t), '{}'), coalesce(array_agg(id order by id), '{}'),"
                     "        coalesce(array_agg(message_id order by id), '{}'),"
                     "        coalesce(array_agg(array_position((select names from t), topic)::smallint order by id), '{}'),"
                     "        coalesce(array_agg((id %% 8)::int order by id), '{}'),"
                     "        coalesce(array_agg(id * 10 order by id), '{}'), min(id), max(id),"
                     "        coalesce(%s::timestamptz, clock_timestamp())"
                     " from m", dispatched, self.name, batch, at)
            self.sql("insert into outbox.settlement_topic (relay, batch_id, topic, count, settled_at)"
                     " select %s, %s, topic, count(*), coalesce(%s::timestamptz, clock_timestamp())"
                     " from outbox.message where id = any (%s) group by topic", self.name, batch, at, dispatched)
            self.sql("delete from outbox.parked where id = any (%s)", dispatched)
            self.sql("delete from outbox.parked_range where relay = %s and taken_by = %s", self.name, batch)
            for row, state in (parked or {}).items():
                self.park(row, state)
            if ranged:
                self.park_range(ranged)

    def park_range(self, ids, waits_for=1):
        """Parks rows of one topic together; the range's id."""
        return self.sql("insert into outbox.parked_range (relay, topic, waits_for_id, ids, claimed_at)"
                        " select %s, min(topic), %s, array_agg(id order by id), now() from outbox.message where id = any (%s)"
                        " returning id", self.name, waits_for, ids)[0][0]

    def take_range(self, range_id, ids):
        """Opens a batch of the range's lowest ids, so many; the rest becomes a range of its own."""
        batch = self.retry(ids)
        self.sql("insert into outbox.parked_range (relay, topic, waits_for_id, ids) select relay, topic, waits_for_id, rest"
                 " from (select d.*, array(select u from unnest(d.ids) u where u <> all (%s) order by u) as rest"
                 "         from outbox.parked_range d where id = %s) d where rest <> '{}'", ids, range_id)
        self.sql("update outbox.parked_range set ids = %s, taken_by = %s where id = %s", ids, batch, range_id)
        return batch

    def park(self, row, state):
        self.sql("insert into outbox.parked (id, relay, message_id, topic, state, attempts, error_code, error, first_error_at)"
                 " select id, %s, message_id, topic, %s, 1, 'CODE', 'reason', now() from outbox.message where id = %s"
                 " on conflict (id) do update set state = excluded.state", self.name, state, row)

    def drain(self, page):
        """Claims and settles until nothing is new."""
        while (batch := self.claim(page)) is not None:
            self.settle(batch)
