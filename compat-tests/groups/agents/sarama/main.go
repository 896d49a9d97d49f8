// A member of a group on sarama, see groups_test.py.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type handler struct{ mutex sync.Mutex }

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	var all []string
	for topic, numbers := range session.Claims() {
		for _, number := range numbers {
			all = append(all, fmt.Sprintf("%s:%d", topic, number))
		}
	}
	sort.Strings(all)
	fmt.Println("A", session.GenerationID(), strings.Join(all, ","))
	return nil
}

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	fmt.Println("A", session.GenerationID())
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.mutex.Lock()
			fmt.Printf("R %s:%d %d\n", message.Topic, message.Partition, message.Offset)
			session.MarkMessage(message, "")
			// A commit takes its time: one for all that has come.
			if len(claim.Messages()) == 0 {
				session.Commit()
			}
			h.mutex.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	group, err := sarama.NewConsumerGroup([]string{os.Getenv("BOOTSTRAP")}, os.Args[2], config)
	if err != nil {
		fmt.Println("E", err)
		os.Exit(1)
	}
	ctx, end := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); end() }()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, os.Args[1:2], &handler{}); err != nil && ctx.Err() == nil {
			fmt.Println("F", err)
		}
	}
	group.Close()
}
