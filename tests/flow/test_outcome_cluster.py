"""Another Kafka cluster under the relay: its offsets are never taken for the old one's, and no producer sends before it was compared."""

from confluent_kafka import Producer

from lib.wait import wait_until

SHORT = ["--lease-ms", 1500]


def cluster_id(broker):
    return broker.admin.list_topics(timeout=20).cluster_id


def test_after_an_accepted_cluster_a_look_up_does_not_begin_at_the_old_clusters_offsets(outbox, kafka, kafka_autocreate, relay):
    """
    The old topic is long, the new one gets messages at its beginning that the crash leaves without receipts, and others' records
    behind them: a look-up from the old receipts' end would miss the messages, and they would go out twice.
    """
    other = kafka_autocreate
    topic = kafka.create_topic("moves")
    other.create_topic(topic)
    with relay(outbox.database, *SHORT) as running:
        outbox.generate(topic, 300)
        outbox.wait_states({"dispatched": 300})
        assert running.stop() == 0
    accept = ["--accept-cluster-id", cluster_id(other)]
    running = relay(outbox.database, *SHORT, *accept, brokers=other.bootstrap)
    running.wait_log("another Kafka cluster is accepted")
    with outbox.database.connect() as person, person.transaction():
        person.execute("lock table outbox.settlement in share row exclusive mode")
        outbox.generate(topic, 20, first=301)
        wait_until(lambda: len(other.read_all(topic)) == 20, 30, "the arrival")
        running.kill()
        person.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'denpyo settle'"
                       " and datname = current_database()")
    foreign = Producer(other.client)
    for number in range(400):
        foreign.produce(topic, b"another program's", headers=[("id", b"%d" % number)])
    assert foreign.flush(60) == 0
    relay(outbox.database, *SHORT, *accept, brokers=other.bootstrap).wait_log("looked up what arrived")
    outbox.wait_states({"dispatched": 320})
    ours = [record for record in other.read_all(topic) if len(record.message_id) == 36]
    assert [record.offset for record in ours] == list(range(20))
    assert outbox.sql('select count(*)::int from outbox.receipt where id > 300 and "offset" < 20') == [(20,)]


def test_a_producer_made_anew_compares_its_cluster_before_it_sends(outbox, own_kafka, relay):
    """In the middle of a term the producer is made anew while no broker answers; then another cluster does, under the same address."""
    before, after = own_kafka(), own_kafka()
    topic = before.create_topic()
    after.create_topic(topic)
    after_id = cluster_id(after)
    after.stop()
    running = relay(outbox.database, brokers=before.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    before.stop()
    with outbox.database.connect() as person, person.transaction():  # the ledger is behind memory: all is loaded again
        person.execute("delete from outbox.settlement_topic")
        person.execute("delete from outbox.settlement")
        person.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'denpyo%'"
                       " and datname = current_database()")
    running.wait_log("loading all of it again")
    after.port, after.bootstrap = before.port, before.bootstrap
    after.start()
    assert running.wait(60) == 1, "it sent what another cluster has"
    assert f"confirm it: --accept-cluster-id {after_id}" in running.lines[-1]
