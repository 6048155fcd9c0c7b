package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"understudy/id"
)

// Signal notifies other servers of a change before their next poll of the database. It may be lost: the database is authoritative.
type Signal struct {
	Kind   string // Wake, Cancel, or a kind of the caller
	Thread id.Thread
	Run    id.Run
}

// Kinds of signals.
const (
	Wake   = "wake"   // there may be runs to claim
	Cancel = "cancel" // a cancel of a run is in the database
)

// signalsKept is how many signals are kept for servers that lag.
const signalsKept = 4096

// Signal notifies all other servers. When Redis is unavailable it fails at once, or after some seconds.
func (b *Bridge) Signal(ctx context.Context, s Signal) error {
	err := b.client.XAdd(ctx, &goredis.XAddArgs{
		Stream: b.key("signals"), MaxLen: signalsKept, Approx: true,
		Values: []any{"i", b.instance, "k", s.Kind, "t", string(s.Thread), "r", string(s.Run)},
	}).Err()
	if err != nil {
		return fmt.Errorf("signal %s: %w", s.Kind, err)
	}
	return nil
}

// latestSignal returns the id of the newest signal. Changes signaled before this server started are in the database.
func (r *reader) latestSignal(ctx context.Context, conn *goredis.Conn) (string, error) {
	newest, err := conn.XRevRangeN(ctx, r.b.key("signals"), "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(newest) == 0 {
		return "0-0", nil
	}
	return newest[0].ID, nil
}

func (r *reader) signals(messages []goredis.XMessage) {
	if r.b.opts.Heard == nil {
		return
	}
	for _, m := range messages {
		text := func(key string) string { s, _ := m.Values[key].(string); return s }
		if text("i") != r.b.instance {
			r.b.opts.Heard(Signal{Kind: text("k"), Thread: id.Thread(text("t")), Run: id.Run(text("r"))})
		}
	}
}
