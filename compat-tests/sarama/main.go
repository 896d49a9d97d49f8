// sarama: produce in every compression, consume, groups, commits, admin.
package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"

	results "kavka.compat/results"
)

func config(change func(*sarama.Config)) *sarama.Config {
	configuration := sarama.NewConfig()
	configuration.Version = sarama.V4_0_0_0
	configuration.Producer.Return.Successes = true
	configuration.Producer.RequiredAcks = sarama.WaitForAll
	configuration.Consumer.Offsets.Initial = sarama.OffsetOldest
	configuration.Consumer.Group.Session.Timeout = 10 * time.Second
	configuration.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	if change != nil {
		change(configuration)
	}
	return configuration
}

func addresses() []string { return []string{results.Bootstrap()} }

func create(prefix string, partitions int32) (string, error) {
	admin, err := sarama.NewClusterAdmin(addresses(), config(nil))
	if err != nil {
		return "", err
	}
	defer admin.Close()
	topic := results.Unique(prefix)
	return topic, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
}

func numbers(count int) []string {
	var values []string
	for i := 0; i < count; i++ {
		values = append(values, fmt.Sprintf("%03d", i))
	}
	return values
}

func produce(topic string, values []string, change func(*sarama.Config)) error {
	producer, err := sarama.NewSyncProducer(addresses(), config(change))
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for i, value := range values {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(i)), Value: sarama.StringEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("h"), Value: []byte("2")}}})
	}
	return producer.SendMessages(messages)
}

func equal(what string, actual, expected any) error {
	if !reflect.DeepEqual(actual, expected) {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, actual)
	}
	return nil
}

func consumePartition(ctx context.Context, topic string, offset int64, count int) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumer(addresses(), config(nil))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case message := <-partition.Messages():
			found = append(found, message)
		case <-ctx.Done():
			return found, fmt.Errorf("%d of %d messages", len(found), count)
		}
	}
	return found, nil
}

func compression(codec sarama.CompressionCodec) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := create("sarama-codec", 1)
		if err != nil {
			return err
		}
		if err := produce(topic, numbers(300), func(c *sarama.Config) { c.Producer.Compression = codec }); err != nil {
			return err
		}
		messages, err := consumePartition(ctx, topic, sarama.OffsetOldest, 300)
		if err != nil {
			return err
		}
		var values []string
		for _, message := range messages {
			values = append(values, string(message.Value))
		}
		if err := equal("number of headers", len(messages[0].Headers), 2); err != nil {
			return err
		}
		return equal("values", values, numbers(300))
	}
}

func idempotent(ctx context.Context) error {
	topic, err := create("sarama-idempotent", 1)
	if err != nil {
		return err
	}
	if err := produce(topic, numbers(100), func(c *sarama.Config) {
		c.Producer.Idempotent = true
		c.Net.MaxOpenRequests = 1
	}); err != nil {
		return err
	}
	messages, err := consumePartition(ctx, topic, 90, 10)
	if err != nil {
		return err
	}
	return equal("last value", string(messages[9].Value), "099")
}

// handler collects messages and marks them, until the count is reached.
type handler struct {
	mutex    sync.Mutex
	values   []string
	count    int
	finished context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			h.mutex.Lock()
			h.values = append(h.values, string(message.Value))
			if len(h.values) == h.count {
				session.Commit()
				h.finished()
			}
			h.mutex.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func consumeGroup(ctx context.Context, topic, name string, count int, strategy sarama.BalanceStrategy) ([]string, error) {
	group, err := sarama.NewConsumerGroup(addresses(), name, config(func(c *sarama.Config) {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	}))
	if err != nil {
		return nil, err
	}
	defer group.Close()
	session, finished := context.WithCancel(ctx)
	defer finished()
	collected := &handler{count: count, finished: finished}
	for session.Err() == nil {
		if err := group.Consume(session, []string{topic}, collected); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return nil, err
		}
	}
	if len(collected.values) != count {
		return nil, fmt.Errorf("%d of %d messages", len(collected.values), count)
	}
	sort.Strings(collected.values)
	return collected.values, nil
}

func groupAndCommit(strategy sarama.BalanceStrategy) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := create("sarama-group", 3)
		if err != nil {
			return err
		}
		name := results.Unique("g")
		if err := produce(topic, numbers(60), nil); err != nil {
			return err
		}
		values, err := consumeGroup(ctx, topic, name, 60, strategy)
		if err != nil {
			return err
		}
		if err := equal("values", values, numbers(60)); err != nil {
			return err
		}
		if err := produce(topic, []string{"late"}, nil); err != nil {
			return err
		}
		values, err = consumeGroup(ctx, topic, name, 1, strategy)
		if err != nil {
			return err
		}
		return equal("values after the commit", values, []string{"late"})
	}
}

func admin(context.Context) error {
	topic, err := create("sarama-admin", 2)
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin(addresses(), config(nil))
	if err != nil {
		return err
	}
	defer admin.Close()
	var taken *sarama.TopicError
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); !errors.As(err, &taken) || taken.Err != sarama.ErrTopicAlreadyExists {
		return fmt.Errorf("second creation: %v", err)
	}
	if err := admin.CreatePartitions(topic, 4, nil, false); err != nil {
		return err
	}
	topics, err := admin.ListTopics()
	if err != nil {
		return err
	}
	if err := equal("partitions", topics[topic].NumPartitions, int32(4)); err != nil {
		return err
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"cleanup.policy"}})
	if err != nil {
		return err
	}
	if len(entries) != 1 || entries[0].Value != "delete" {
		return fmt.Errorf("cleanup.policy: %v", entries)
	}
	return admin.DeleteTopic(topic)
}

func main() {
	client := "sarama"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/IBM/sarama" {
				client += " " + dependency.Version
			}
		}
	}
	for name, codec := range map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD} {
		results.Check(client, "compression "+name, compression(codec))
	}
	results.Check(client, "idempotent producer", idempotent)
	for name, strategy := range map[string]sarama.BalanceStrategy{"range": sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(), "sticky": sarama.NewBalanceStrategySticky()} {
		results.Check(client, "group, commit "+name, groupAndCommit(strategy))
	}
	results.Check(client, "admin topics", admin)
	results.Finish()
}
