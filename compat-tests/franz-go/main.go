// franz-go: produce in every compression, consume, groups of several balancers, commits, transactions, admin.
package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	results "kavka.compat/results"
)

func newClient(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(results.Bootstrap())}, options...)...)
}

func withAdmin(use func(*kadm.Client) error) error {
	client, err := newClient()
	if err != nil {
		return err
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}

// create waits until the broker knows the topic: Apache Kafka's controller answers before.
func create(ctx context.Context, prefix string, partitions int32) (string, error) {
	topic := results.Unique(prefix)
	return topic, withAdmin(func(admin *kadm.Client) error {
		if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
			return err
		}
		return awaitPartitions(ctx, admin, topic, int(partitions))
	})
}

func awaitPartitions(ctx context.Context, admin *kadm.Client, topic string, partitions int) error {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		topics, err := admin.ListTopics(ctx, topic)
		if err == nil {
			err = topics.Error()
		}
		if err == nil {
			err = equal("partitions", len(topics[topic].Partitions), partitions)
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func produce(ctx context.Context, topic string, values []string, options ...kgo.Opt) error {
	client, err := newClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for i, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(fmt.Sprint(i)), Value: []byte(value),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}}})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func take(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return found, fmt.Errorf("after %d of %d records: %w", len(found), count, errs[0].Err)
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func numbers(count int) []string {
	var values []string
	for i := 0; i < count; i++ {
		values = append(values, fmt.Sprintf("%03d", i))
	}
	return values
}

func valuesOf(records []*kgo.Record) []string {
	var values []string
	for _, record := range records {
		values = append(values, string(record.Value))
	}
	sort.Strings(values)
	return values
}

func equal(what string, actual, expected any) error {
	if !reflect.DeepEqual(actual, expected) {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, actual)
	}
	return nil
}

func compression(codec kgo.CompressionCodec) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := create(ctx, "fg-codec", 1)
		if err != nil {
			return err
		}
		if err := produce(ctx, topic, numbers(500), kgo.ProducerBatchCompression(codec)); err != nil {
			return err
		}
		client, err := newClient(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		defer client.Close()
		records, err := take(ctx, client, 500)
		if err != nil {
			return err
		}
		if err := equal("headers", records[0].Headers, []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}}); err != nil {
			return err
		}
		return equal("values", valuesOf(records), numbers(500))
	}
}

func group(topic, name string, options ...kgo.Opt) (*kgo.Client, error) {
	return newClient(append([]kgo.Opt{kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond)}, options...)...)
}

func commitAndResume(ctx context.Context) error {
	topic, err := create(ctx, "fg-commit", 2)
	if err != nil {
		return err
	}
	name := results.Unique("g")
	if err := produce(ctx, topic, numbers(40)); err != nil {
		return err
	}
	first, err := group(topic, name)
	if err != nil {
		return err
	}
	records, err := take(ctx, first, 40)
	if err == nil {
		err = first.CommitRecords(ctx, records...)
	}
	first.Close()
	if err != nil {
		return err
	}
	if err := produce(ctx, topic, []string{"late"}); err != nil {
		return err
	}
	second, err := group(topic, name)
	if err != nil {
		return err
	}
	defer second.Close()
	records, err = take(ctx, second, 1)
	if err != nil {
		return err
	}
	return equal("values after the commit", valuesOf(records), []string{"late"})
}

func balancer(balancer kgo.GroupBalancer) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := create(ctx, "fg-balance", 4)
		if err != nil {
			return err
		}
		name := results.Unique("g")
		var members []*kgo.Client
		owned := make([]chan map[int32]bool, 2)
		for i := range owned {
			owned[i] = make(chan map[int32]bool, 100)
			mine, report := map[int32]bool{}, owned[i]
			change := func(add bool) func(context.Context, *kgo.Client, map[string][]int32) {
				return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
					for _, partition := range partitions[topic] {
						if add {
							mine[partition] = true
						} else {
							delete(mine, partition)
						}
					}
					copied := map[int32]bool{}
					for partition := range mine {
						copied[partition] = true
					}
					report <- copied
				}
			}
			client, err := group(topic, name, kgo.Balancers(balancer), kgo.OnPartitionsAssigned(change(true)),
				kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))
			if err != nil {
				return err
			}
			defer client.Close()
			members = append(members, client)
		}
		polling, stop := context.WithCancel(ctx)
		defer stop()
		for _, member := range members {
			go func() {
				for polling.Err() == nil {
					member.PollFetches(polling)
				}
			}()
		}
		latest := make([]map[int32]bool, 2)
		for {
			if len(latest[0]) == 2 && len(latest[1]) == 2 {
				return nil
			}
			select {
			case latest[0] = <-owned[0]:
			case latest[1] = <-owned[1]:
			case <-ctx.Done():
				return fmt.Errorf("not balanced: %v", latest)
			}
		}
	}
}

func admin(ctx context.Context) error {
	topic, err := create(ctx, "fg-admin", 3)
	if err != nil {
		return err
	}
	return withAdmin(func(admin *kadm.Client) error {
		if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("second creation: %v", err)
		}
		if err := produce(ctx, topic, numbers(9)); err != nil {
			return err
		}
		offsets, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		var total int64
		offsets.Each(func(offset kadm.ListedOffset) { total += offset.Offset })
		if err := equal("sum of end offsets", total, int64(9)); err != nil {
			return err
		}
		grown, err := admin.CreatePartitions(ctx, 2, topic)
		if err == nil {
			err = grown.Error()
		}
		if err != nil {
			return err
		}
		if err := awaitPartitions(ctx, admin, topic, 5); err != nil {
			return err
		}
		deleted, err := admin.DeleteTopics(ctx, topic)
		if err == nil {
			err = deleted.Error()
		}
		return err
	})
}

func groupAdmin(ctx context.Context) error {
	topic, err := create(ctx, "fg-groups", 1)
	if err != nil {
		return err
	}
	name := results.Unique("g")
	return withAdmin(func(admin *kadm.Client) error {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, 0, -1)
		if err := admin.CommitAllOffsets(ctx, name, offsets); err != nil {
			return err
		}
		fetched, err := admin.FetchOffsets(ctx, name)
		if err != nil {
			return err
		}
		if offset, there := fetched.Lookup(topic, 0); !there || offset.At != 0 {
			return fmt.Errorf("committed offset: %v", fetched)
		}
		groups, err := admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		if err := equal("state", groups[name].State, "Empty"); err != nil {
			return err
		}
		deleted, err := admin.DeleteGroups(ctx, name)
		if err == nil {
			err = deleted.Error()
		}
		return err
	})
}

func main() {
	client := "franz-go"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/twmb/franz-go" {
				client += " " + dependency.Version
			}
		}
	}
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		results.Check(client, "compression "+name, compression(codec))
	}
	results.Check(client, "commit, resume", commitAndResume)
	for name, strategy := range map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()} {
		results.Check(client, "rebalance "+name, balancer(strategy))
	}
	results.Check(client, "admin topics", admin)
	results.Check(client, "admin groups", groupAdmin)
	transactions(client)
	results.Finish()
}
