// The benchmark's forwarder: watermill's own components, with the settings that were fastest here.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func key(_ string, m *message.Message) (string, error) { return m.Metadata.Get("key"), nil }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	logger := watermill.NewStdLogger(false, false)
	db, err := sql.Open("pgx", os.Getenv("BENCH_POSTGRES"))
	must(err)
	subscriber, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
		ConsumerGroup:    "bench",
		PollInterval:     time.Millisecond,
		SchemaAdapter:    wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1000},
		OffsetsAdapter:   wsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
	}, logger)
	must(err)
	config := kafka.DefaultSaramaSyncPublisherConfig()
	config.Version = sarama.V2_1_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Compression = sarama.CompressionLZ4
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers:               []string{os.Getenv("BENCH_BROKERS")},
		Marshaler:             kafka.NewWithPartitioningMarshaler(key),
		OverwriteSaramaConfig: config,
	}, logger)
	must(err)
	f, err := forwarder.NewForwarder(subscriber, publisher, logger, forwarder.Config{ForwarderTopic: "outbox"})
	must(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	must(f.Run(ctx))
}
