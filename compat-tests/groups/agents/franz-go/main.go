// A member of a group on franz-go, see groups_test.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	mutex sync.Mutex
	owned = map[string]bool{}
	known = ""
	out   = bufio.NewWriter(os.Stdout)
)

func changed(partitions map[string][]int32, isOwned bool) {
	mutex.Lock()
	defer mutex.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			delete(owned, fmt.Sprintf("%s:%d", topic, number))
			if isOwned {
				owned[fmt.Sprintf("%s:%d", topic, number)] = true
			}
		}
	}
}

func printOwned(client *kgo.Client) {
	mutex.Lock()
	defer mutex.Unlock()
	var all []string
	for partition := range owned {
		all = append(all, partition)
	}
	sort.Strings(all)
	_, generation := client.GroupMetadata()
	if now := fmt.Sprintf("%d %s", generation, strings.Join(all, ",")); now != known {
		known = now
		fmt.Fprintln(out, "A", now)
	}
}

func main() {
	topic, group, options := os.Args[1], os.Args[2], map[string]string{}
	for _, option := range os.Args[3:] {
		key, value, _ := strings.Cut(option, "=")
		options[key] = value
	}
	config := []kgo.Opt{kgo.SeedBrokers(os.Getenv("BOOTSTRAP")), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(), kgo.MetadataMaxAge(2 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { changed(p, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { changed(p, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { changed(p, false) })}
	if options["instance"] != "" {
		config = append(config, kgo.InstanceID(options["instance"]))
	}
	switch {
	case options["protocol"] == "consumer":
		config = append(config, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case options["assignor"] == "cooperative-sticky":
		config = append(config, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		config = append(config, kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := kgo.NewClient(config...)
	if err != nil {
		fmt.Println("E", err)
		os.Exit(1)
	}
	ctx, end := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); end() }()
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		records := client.PollFetches(poll).Records()
		cancel()
		for _, record := range records {
			fmt.Fprintf(out, "R %s:%d %d\n", record.Topic, record.Partition, record.Offset)
		}
		out.Flush()
		if len(records) > 0 {
			if err := client.CommitRecords(context.Background(), records...); err != nil {
				fmt.Fprintln(out, "F", err)
			}
		}
		printOwned(client)
		out.Flush()
		client.AllowRebalance()
	}
	client.Close()
}
