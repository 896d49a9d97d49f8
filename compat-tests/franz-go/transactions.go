package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	results "kavka.compat/results"
)

func transactional(name string, options ...kgo.Opt) (*kgo.Client, error) {
	return newClient(append([]kgo.Opt{kgo.TransactionalID(name), kgo.RecordPartitioner(kgo.ManualPartitioner())}, options...)...)
}

// send waits until all values are acknowledged.
func send(ctx context.Context, client *kgo.Client, topic string, partition int32, values ...string) error {
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// transact is one transaction with these values.
func transact(ctx context.Context, client *kgo.Client, how kgo.TransactionEndTry, topic string, values ...string) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, client, topic, 0, values...); err != nil {
		return err
	}
	return client.EndTransaction(ctx, how)
}

// read expects these values, sorted, and no more.
func read(ctx context.Context, topic string, isolation kgo.IsolationLevel, expected ...string) error {
	client, err := newClient(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return err
	}
	defer client.Close()
	records, err := take(ctx, client, len(expected))
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	records = append(records, client.PollFetches(short).Records()...)
	return equal("values read", valuesOf(records), expected)
}

func stableEnd(ctx context.Context, topic string) (end int64, err error) {
	err = withAdmin(func(admin *kadm.Client) error {
		offsets, err := admin.ListCommittedOffsets(ctx, topic)
		if err != nil {
			return err
		}
		offset, _ := offsets.Lookup(topic, 0)
		end = offset.Offset
		return offset.Err
	})
	return end, err
}

func awaitStableEnd(ctx context.Context, topic string, wanted int64) error {
	for {
		end, err := stableEnd(ctx, topic)
		if err != nil || end == wanted {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the last stable offset is %d, not %d", end, wanted)
		}
	}
}

func commitTransaction(ctx context.Context) error {
	topic, err := create(ctx, "fg-tx", 1)
	if err != nil {
		return err
	}
	client, err := transactional(results.Unique("tx"))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, client, topic, 0, numbers(10)...); err != nil {
		return err
	}
	if err := read(ctx, topic, kgo.ReadUncommitted(), numbers(10)...); err != nil {
		return err
	}
	if err := read(ctx, topic, kgo.ReadCommitted()); err != nil {
		return err
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	if err := read(ctx, topic, kgo.ReadCommitted(), numbers(10)...); err != nil {
		return err
	}
	return awaitStableEnd(ctx, topic, 11)
}

func abortTransaction(ctx context.Context) error {
	topic, err := create(ctx, "fg-tx", 1)
	if err != nil {
		return err
	}
	client, err := transactional(results.Unique("tx"))
	if err != nil {
		return err
	}
	defer client.Close()
	for i, how := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		if err := transact(ctx, client, how, topic, fmt.Sprint(2*i), fmt.Sprint(2*i+1)); err != nil {
			return err
		}
	}
	if err := read(ctx, topic, kgo.ReadCommitted(), "2", "3"); err != nil {
		return err
	}
	return read(ctx, topic, kgo.ReadUncommitted(), "0", "1", "2", "3", "4", "5")
}

func allOrNothing(ctx context.Context) error {
	var topics [2]string
	for i := range topics {
		var err error
		if topics[i], err = create(ctx, "fg-tx", 3); err != nil {
			return err
		}
	}
	client, err := transactional(results.Unique("tx"))
	if err != nil {
		return err
	}
	defer client.Close()
	var expected []string
	for i := 0; i < 30; i++ {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		value := fmt.Sprintf("%03d", i)
		for _, topic := range topics {
			for partition := int32(0); partition < 3; partition++ {
				client.Produce(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}, nil)
			}
		}
		if err := client.Flush(ctx); err != nil {
			return err
		}
		how := kgo.TryAbort
		if i%3 != 0 {
			how = kgo.TryCommit
			expected = append(expected, value, value, value)
		}
		if err := client.EndTransaction(ctx, how); err != nil {
			return err
		}
	}
	for _, topic := range topics {
		if err := read(ctx, topic, kgo.ReadCommitted(), expected...); err != nil {
			return err
		}
	}
	return nil
}

func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// fenced has a second producer of the same id commit "2" between what the first one does; what that does last is refused.
func fenced(ctx context.Context, before, after func(first *kgo.Client, topic string) error, expected ...string) error {
	topic, err := create(ctx, "fg-tx", 1)
	if err != nil {
		return err
	}
	name := results.Unique("tx")
	first, err := transactional(name)
	if err != nil {
		return err
	}
	defer first.Close()
	if err := before(first, topic); err != nil {
		return err
	}
	second, err := transactional(name)
	if err != nil {
		return err
	}
	defer second.Close()
	if err := transact(ctx, second, kgo.TryCommit, topic, "2"); err != nil {
		return err
	}
	if err := after(first, topic); !isFenced(err) {
		return fmt.Errorf("the first one goes on: %v", err)
	}
	return read(ctx, topic, kgo.ReadCommitted(), expected...)
}

func fencing(ctx context.Context) error {
	before := func(first *kgo.Client, topic string) error {
		if err := first.BeginTransaction(); err != nil {
			return err
		}
		return send(ctx, first, topic, 0, "1")
	}
	after := func(first *kgo.Client, _ string) error { return first.EndTransaction(ctx, kgo.TryCommit) }
	return fenced(ctx, before, after, "2")
}

func fencedSend(ctx context.Context) error {
	commit := func(value string) func(*kgo.Client, string) error {
		return func(first *kgo.Client, topic string) error { return transact(ctx, first, kgo.TryCommit, topic, value) }
	}
	return fenced(ctx, commit("1"), commit("3"), "1", "2")
}

func transactionTimeout(ctx context.Context) error {
	topic, err := create(ctx, "fg-tx", 1)
	if err != nil {
		return err
	}
	client, err := transactional(results.Unique("tx"), kgo.TransactionTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, client, topic, 0, "1"); err != nil {
		return err
	}
	if err := awaitStableEnd(ctx, topic, 2); err != nil {
		return err
	}
	// It has the epoch before: so a commit comes again that never was one.
	if err := client.EndTransaction(ctx, kgo.TryCommit); !errors.Is(err, kerr.InvalidTxnState) {
		return fmt.Errorf("the late end: %v", err)
	}
	return read(ctx, topic, kgo.ReadCommitted())
}

func timeoutTooLong(ctx context.Context) error {
	client, err := transactional(results.Unique("tx"), kgo.TransactionTimeout(1000*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, _, err := client.ProducerID(ctx); !errors.Is(err, kerr.InvalidTransactionTimeout) {
		return fmt.Errorf("a producer id: %v", err)
	}
	return nil
}

func session(source, group, name string, options ...kgo.Opt) (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(append([]kgo.Opt{kgo.SeedBrokers(results.Bootstrap()), kgo.TransactionalID(name), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond)}, options...)...)
}

// copyOnce is one transaction: what is polled goes to target with its offsets.
func copyOnce(ctx context.Context, session *kgo.GroupTransactSession, target string, how kgo.TransactionEndTry) (int, error) {
	fetches := session.PollRecords(ctx, 20)
	if errs := fetches.Errors(); len(errs) > 0 {
		return 0, errs[0].Err
	}
	if err := session.Begin(); err != nil {
		return 0, err
	}
	for _, record := range fetches.Records() {
		session.Produce(ctx, &kgo.Record{Topic: target, Key: record.Key, Value: record.Value}, nil)
	}
	committed, err := session.End(ctx, how)
	if err != nil || !committed {
		return 0, err
	}
	return len(fetches.Records()), nil
}

func committedOffset(ctx context.Context, group, topic string) (at int64, err error) {
	at = -1
	err = withAdmin(func(admin *kadm.Client) error {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		if offset, there := offsets.Lookup(topic, 0); there {
			at = offset.At
		}
		return nil
	})
	return at, err
}

func sessionOffsets(ctx context.Context) error {
	source, err := create(ctx, "fg-tx-in", 1)
	if err != nil {
		return err
	}
	target, err := create(ctx, "fg-tx-out", 1)
	if err != nil {
		return err
	}
	if err := produce(ctx, source, numbers(40)); err != nil {
		return err
	}
	group, name := results.Unique("g"), results.Unique("tx")
	session, err := session(source, group, name)
	if err != nil {
		return err
	}
	defer session.Close()
	if _, err := copyOnce(ctx, session, target, kgo.TryAbort); err != nil {
		return err
	}
	if at, err := committedOffset(ctx, group, source); err != nil || at != -1 {
		return fmt.Errorf("offset %d after an abort, %v", at, err)
	}
	for done := 0; done < 40; {
		copied, err := copyOnce(ctx, session, target, kgo.TryCommit)
		if err != nil {
			return err
		}
		done += copied
	}
	for at := int64(-1); at != 40; {
		if at, err = committedOffset(ctx, group, source); err != nil || ctx.Err() != nil {
			return fmt.Errorf("offset %d after the commits, %v", at, err)
		}
	}
	return read(ctx, target, kgo.ReadCommitted(), numbers(40)...)
}

// Members that come and go while they copy: what was polled by one that lost its partitions is aborted (KIP-447).
func sessionsThatComeAndGo(ctx context.Context) error {
	source, err := create(ctx, "fg-tx-in", 4)
	if err != nil {
		return err
	}
	target, err := create(ctx, "fg-tx-out", 2)
	if err != nil {
		return err
	}
	if err := produce(ctx, source, numbers(600)); err != nil {
		return err
	}
	group := results.Unique("g")
	working, stop := context.WithCancel(ctx)
	defer stop()
	copied, failures := make(chan int), make(chan error, 10)
	member := func(rounds int) error {
		session, err := session(source, group, results.Unique("tx"))
		if err != nil {
			return err
		}
		defer session.Close()
		for i := 0; i < rounds && working.Err() == nil; i++ {
			count, err := copyOnce(working, session, target, kgo.TransactionEndTry(i%4 != 3))
			if working.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			copied <- count
		}
		return nil
	}
	for number := 0; number < 3; number++ {
		go func() {
			for working.Err() == nil {
				// Two go after some rounds and come back.
				if err := member([]int{1 << 30, 3, 5}[number]); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	for done := 0; done < 600; {
		select {
		case count := <-copied:
			done += count
		case err := <-failures:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d of 600 records", done)
		}
	}
	stop()
	return read(ctx, target, kgo.ReadCommitted(), numbers(600)...)
}

func transactions(client string) {
	results.Check(client, "transactions: commit", commitTransaction)
	results.Check(client, "transactions: abort", abortTransaction)
	results.Check(client, "transactions: all or nothing", allOrNothing)
	results.Check(client, "transactions: fencing", fencing)
	results.Check(client, "transactions: fenced send", fencedSend)
	results.Check(client, "transactions: timeout", transactionTimeout)
	results.Check(client, "transactions: timeout too long", timeoutTooLong)
	results.Check(client, "transactions: session's offsets", sessionOffsets)
	results.Check(client, "transactions: sessions that come and go", sessionsThatComeAndGo)
}
