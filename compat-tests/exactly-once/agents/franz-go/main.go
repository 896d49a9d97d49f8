// Copies SOURCE to TARGET in transactions, on franz-go, see exactly_once_test.py.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	source, target, group, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	options := []kgo.Opt{kgo.SeedBrokers(os.Getenv("BOOTSTRAP")), kgo.TransactionalID(name), kgo.TransactionTimeout(30 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond)}
	if len(os.Args) > 5 {
		options = append(options, kgo.InstanceID(os.Args[5]))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ctx := context.Background()
	for {
		fetches := session.PollRecords(ctx, 20)
		for _, err := range fetches.Errors() {
			fmt.Println("poll:", err.Err)
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			fmt.Println("begin:", err)
			os.Exit(1)
		}
		sent := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: target, Partition: record.Partition, Value: record.Value}, sent.Promise())
		})
		err := sent.Err()
		if err != nil {
			fmt.Println("produce:", err)
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(err == nil && rand.Intn(10) > 0))
		if err != nil {
			fmt.Println("end:", err)
			os.Exit(1)
		}
		if !committed {
			fmt.Println("aborted")
		}
	}
}
