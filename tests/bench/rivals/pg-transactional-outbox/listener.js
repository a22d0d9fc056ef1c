// The benchmark's listener: pg-transactional-outbox polls, kafkajs publishes; the settings are those that were fastest here.
const { Kafka, Partitioners, logLevel } = require('kafkajs');
const { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } = require('pg-transactional-outbox');

const NEXT = 'next_outbox_messages';

// What its own set-up makes: table, function, indexes.
function sql() {
  const setup = {
    outboxOrInbox: 'outbox', database: '', schema: 'public', table: 'outbox', listenerRole: 'postgres', nextMessagesName: NEXT,
  };
  return [DatabaseSetup.dropAndCreateTable(setup), DatabaseSetup.createPollingFunction(setup),
    DatabaseSetup.setupPollingIndexes(setup)].join(';\n');
}

async function run() {
  const kafka = new Kafka({ brokers: [process.env.BENCH_BROKERS], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5, createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const handler = {
    handle: (m) => producer.send({
      topic: m.aggregateType, acks: -1,
      messages: [{ key: m.aggregateId, value: JSON.stringify(m.payload), headers: { id: m.id } }],
    }),
  };
  const db = { host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE, max: 10 };
  const [shutdown] = initializePollingMessageListener({
    outboxOrInbox: 'outbox', dbListenerConfig: db, dbHandlerConfig: db,
    settings: {
      dbSchema: 'public', dbTable: 'outbox', nextMessagesFunctionName: NEXT, nextMessagesBatchSize: 100, nextMessagesPollingIntervalInMs: 1,
      enableMaxAttemptsProtection: false, enablePoisonousMessageProtection: false,
    },
  }, handler, getDisabledLogger());
  process.on('SIGTERM', async () => {
    await shutdown();
    await producer.disconnect();
    process.exit(0);
  });
}

if (process.argv[2] === 'sql') console.log(sql());
else run().catch((error) => { console.error(error); process.exit(1); });
