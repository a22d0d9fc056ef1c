"""One outbox as tests of trouble use it: rows go in, and what SQL says about them is waited for."""

from psycopg import sql
from psycopg.rows import namedtuple_row

from lib.wait import wait_until

ON_THE_WAY = "select coalesce(sum(pending + delayed + held + requesting + failed), 0)::int as count from outbox.lag"
SESSIONS = """
select application_name, state, wait_event, clock_timestamp() - state_change as since, left(query, 60)
  from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""


class Outbox:
    """The schema `outbox` of a database, over one connection that lives as long as the test."""

    def __init__(self, database):
        self.database = database
        self.connection = database.connect()
        self.connection.row_factory = namedtuple_row

    def close(self):
        self.connection.close()

    def sql(self, query, *params):
        cursor = self.connection.execute(query, params or None)
        return cursor.fetchall() if cursor.description else []

    # --- rows in ---

    def insert(self, topic, **columns):
        """One plain INSERT with parameters, in a transaction of its own: the row's id and message_id."""
        names = ["topic", *columns]
        query = sql.SQL("insert into outbox.message ({}) values ({}) returning id, message_id").format(
            sql.SQL(", ").join(map(sql.Identifier, names)), sql.SQL(", ").join(sql.Placeholder() * len(names)))
        return self.connection.execute(query, [topic, *columns.values()]).fetchone()

    def generate(self, topic, count, key="'k' || n % 10", payload="'p' || n", first=1, partition="null"):
        """Rows first … first + count - 1 in one transaction; key, payload and partition are SQL over the number n."""
        query = sql.SQL("insert into outbox.message (topic, key, payload, partition)"
                        f" select {{}}, {key}, {payload}, {partition} from generate_series({{}}, {{}}) n order by n")
        self.connection.execute(query.format(topic, first, first + count - 1))

    # --- what SQL says ---

    def states(self, topic=None):
        """How many rows are in each state: {"dispatched": 3}. For thousands of rows the server needs statistics."""
        return dict(self.sql("select state, count(*)::int from outbox.status where topic = coalesce(%s, topic) group by 1",
                             topic))

    def row(self, number):
        """The row of outbox.status of one message."""
        (row,) = self.sql("select * from outbox.status where id = %s", number)
        return row

    def wait_states(self, expected, topic=None, deadline_s=60):
        """Waits until exactly these states are there; says which are, when they are not."""
        seen = {}

        def are_there():
            seen["states"] = self.states(topic)
            return seen["states"] == expected

        try:
            wait_until(are_there, deadline_s, f"{expected} of {topic or 'all topics'}")
        except AssertionError as error:
            raise AssertionError(f"{error}; there are {seen['states']}, the sessions {self.sql(SESSIONS)}") from None

    def wait_row(self, number, state, deadline_s=60):
        """Waits until one message is in this state, and returns its row of outbox.status."""
        wait_until(lambda: self.row(number).state == state, deadline_s, f"message {number} {state}")
        return self.row(number)

    def wait_dispatched(self, at_least, topic, deadline_s=60):
        """Waits until so many of the topic's rows have a receipt; cheap, however many rows there are."""
        query = "select coalesce(sum(count), 0) >= %s from outbox.settlement_topic where topic = %s"
        wait_until(lambda: self.sql(query, at_least, topic)[0][0], deadline_s, f"{at_least} dispatched of {topic}")

    def wait_resolved(self, deadline_s=120):
        """Waits until every row is dispatched, rejected or skipped; what is left in parked needs a person."""
        wait_until(lambda: self.sql(ON_THE_WAY)[0].count == 0, deadline_s, "every row's end")
        assert self.sql("select id, state from outbox.parked where state not in ('rejected', 'skipped') limit 5") == []
