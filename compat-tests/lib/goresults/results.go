// Package results prints one line a result, as compat-tests/run reads them.
package results

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"
)

const patience = 60 * time.Second

var failed bool

// Bootstrap is the address of the node under test.
func Bootstrap() string {
	if address := os.Getenv("BOOTSTRAP"); address != "" {
		return address
	}
	return "localhost:9092"
}

// Unique returns a name that no other test uses.
func Unique(prefix string) string {
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return prefix + "-" + hex.EncodeToString(random)
}

// Check runs a test with a deadline and prints its result.
func Check(client, feature string, test func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- test(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(patience + 5*time.Second):
		err = fmt.Errorf("no end in %v", patience)
	}
	outcome, detail := "pass", ""
	if err != nil {
		outcome, failed = "fail", true
		detail = strings.NewReplacer("\n", " ", "\t", " ").Replace(err.Error())
	}
	fmt.Printf("RESULT\t%s\t%s\t%s\t%s\n", client, feature, outcome, detail)
}

// Finish ends the program with the right exit code.
func Finish() {
	if failed {
		os.Exit(1)
	}
}
