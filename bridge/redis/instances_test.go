package redis_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/id"
	"understudy/internal/redistest"
)

const (
	thread = id.Thread("t")
	runA   = id.Run("a")
)

func kept(event string) *bridge.Record {
	return &bridge.Record{Run: runA, Event: event, Kept: true, Data: []byte(event)}
}

func token(event string) *bridge.Record {
	return &bridge.Record{Run: runA, Event: event, Kept: true, Kind: bridge.Token}
}

func publish(t testing.TB, b bridge.Bridge, records ...*bridge.Record) {
	t.Helper()
	require.NoError(t, b.Publish(t.Context(), thread, records))
}

// subscribe comes again while Redis is away.
func subscribe(t testing.TB, b bridge.Bridge, after *bridge.Offset) bridge.Subscription {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		s, err := b.Subscribe(t.Context(), thread, after)
		if errors.Is(err, bridge.ErrInterrupted) && time.Now().Before(deadline) {
			continue
		}
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
}

func next(t testing.TB, s bridge.Subscription) ([]*bridge.Record, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return s.Next(ctx)
}

// events reads until n records have come.
func events(t testing.TB, s bridge.Subscription, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		records, err := next(t, s)
		require.NoError(t, err, "after %v", got)
		for _, r := range records {
			got = append(got, r.Event)
		}
	}
	return got
}

// interrupted reads until the subscription is interrupted.
func interrupted(t testing.TB, s bridge.Subscription) (got []string) {
	t.Helper()
	for {
		records, err := next(t, s)
		if err != nil {
			require.ErrorIs(t, err, bridge.ErrInterrupted)
			return got
		}
		for _, r := range records {
			got = append(got, r.Event)
		}
	}
}

// What comes from Redis is encoded for SSE once, live and replayed.
func TestFrame(t *testing.T) {
	t.Parallel()
	opts := redis.Options{URL: redistest.Start(t).URL, Frame: func(event string, data []byte) []byte { return []byte(event + "=" + string(data)) }}
	b := open(t, opts)
	live := subscribe(t, b, nil)
	publish(t, b, kept("a"))
	for _, s := range []bridge.Subscription{live, subscribe(t, b, &bridge.Offset{})} {
		records, err := next(t, s)
		require.NoError(t, err)
		require.Equal(t, "a=a", string(records[0].Frame))
	}
}

// Connections that are cut cost nothing: every record comes once, in order, on every instance.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := open(t, redis.Options{URL: server.URL}), open(t, redis.Options{URL: server.URL})
	s := subscribe(t, b, nil)
	const n = 3000
	publish(t, a, kept("0"))
	got := events(t, s, 1) // so that a reconnect cannot be mistaken for a stream that began meanwhile
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; i < n; i++ {
			publish(t, a, kept(strconv.Itoa(i)))
			if i%500 == 250 {
				server.Cut()
			}
		}
	}()
	got = append(got, events(t, s, n-1)...)
	<-done
	for i, e := range got {
		require.Equal(t, strconv.Itoa(i), e)
	}
	replayed := events(t, subscribe(t, a, &bridge.Offset{}), n)
	require.Equal(t, got, replayed, "several pages")
}

// A Redis that is killed and comes back with what it had written takes up where it was.
func TestRestartWithFiles(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a, b := open(t, opts), open(t, opts)
	s := subscribe(t, b, nil)
	publish(t, a, kept("1"), kept("2"))
	require.Equal(t, []string{"1", "2"}, events(t, s, 2))
	server.Stop()
	publish(t, a, kept("3"))
	publish(t, a, token("4"))
	server.Restart()
	require.Equal(t, []string{"3", "4"}, events(t, s, 2))
	publish(t, a, kept("5"))
	require.Equal(t, []string{"5"}, events(t, s, 1))
	require.Equal(t, []string{"1", "2", "3", "4", "5"}, events(t, subscribe(t, a, &bridge.Offset{}), 5))
}

// A Redis that comes back empty: readers are interrupted, even without new records, and learn of the gap. Records published during the outage
// are there.
func TestRestartWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a, b := open(t, opts), open(t, opts)
	s := subscribe(t, b, nil)
	one := kept("1")
	publish(t, a, one)
	require.Equal(t, []string{"1"}, events(t, s, 1))
	subscribe(t, a, nil) // what was sent is acknowledged: else it may be sent again
	server.Restart()
	require.Empty(t, interrupted(t, s))
	again := subscribe(t, b, &one.Offset)
	require.Equal(t, bridge.RecordGap, again.Gap(runA))
	require.Equal(t, bridge.RecordGap, again.Gap(""))
	publish(t, a, kept("2"))
	require.Equal(t, []string{"2"}, events(t, again, 1))
	require.Equal(t, bridge.RecordGap, subscribe(t, b, &bridge.Offset{}).Gap(runA), "whoever published knows what there has been")
}

// A Redis that comes back empty between two reads, so that none fails.
func TestRestartUnseen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := open(t, redis.Options{URL: server.URL, Outage: time.Minute})
	reads, restarted := make(chan struct{}), make(chan struct{})
	b := open(t, redis.Options{URL: server.URL, Outage: time.Minute, Frame: func(string, []byte) []byte {
		close(reads)
		<-restarted
		return nil
	}})
	s := subscribe(t, b, nil)
	one := kept("1")
	publish(t, a, one)
	<-reads
	subscribe(t, a, nil) // what was sent is acknowledged: else it may be sent again
	server.Restart()
	close(restarted)
	require.Subset(t, []string{"1"}, interrupted(t, s))
	require.Equal(t, bridge.RecordGap, subscribe(t, b, &one.Offset).Gap(runA))
}

// A Redis that comes back empty and has new records before its readers look: these notice, although there are more records than they had read, and the new
// ones have lower offsets, by another clock.
func TestRestartWithNewRecords(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a := open(t, opts)
	opts.Now = func() time.Time { return time.Now().Add(time.Hour) }
	ahead := open(t, opts)
	reads, restarted := make(chan struct{}), make(chan struct{})
	opts.Frame = func(string, []byte) []byte {
		close(reads)
		<-restarted
		return nil
	}
	s := subscribe(t, open(t, opts), nil)
	publish(t, ahead, kept("1"))
	<-reads
	subscribe(t, ahead, nil) // what was sent is acknowledged: else it may be sent again
	server.Restart()
	publish(t, a, kept("2"), kept("3"))
	subscribe(t, a, nil) // they have arrived
	close(restarted)
	require.Subset(t, []string{"1"}, interrupted(t, s))
}

// Redis loses a stream before its reader has read the first record. The reader is interrupted, whichever server publishes first afterwards, and whether the
// stream is empty or has new records when the reader reconnects.
func TestRestartBeforeTheFirstRead(t *testing.T) {
	t.Parallel()
	const other = id.Thread("other")
	for _, byAnother := range []bool{false, true} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("another begins it: %t, before the reader looks: %t", byAnother, begun), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				opts := redis.Options{URL: server.URL, Outage: time.Minute}
				a, first := open(t, opts), open(t, opts)
				if !byAnother {
					first = a
				}
				reads, restarted := make(chan struct{}), make(chan struct{})
				var once sync.Once
				opts.Frame = func(string, []byte) []byte {
					once.Do(func() { close(reads); <-restarted })
					return nil
				}
				b := open(t, opts)
				s := subscribe(t, b, nil)
				beside, err := b.Subscribe(t.Context(), other, nil)
				require.NoError(t, err)
				t.Cleanup(beside.Close)
				require.NoError(t, a.Publish(t.Context(), other, []*bridge.Record{kept("blocks the reader")}))
				<-reads
				publish(t, a, kept("1"), kept("2"))
				subscribe(t, a, nil) // they have arrived
				server.Restart()
				begin := func() {
					publish(t, first, kept("3"))
					subscribe(t, first, nil)
				}
				if begun {
					begin()
				}
				close(restarted)
				if !begun {
					interrupted(t, beside) // it is connected
					begin()
				}
				publish(t, a, kept("4")) // who published what was lost knows it
				got := interrupted(t, s)
				require.Subset(t, []string{"3"}, got)
				require.True(t, len(got) == 0 || byAnother && !begun, "only a server that lost records can tell that there were any")
			})
		}
	}
}

// A publisher whose records a Redis has lost says so also when another one was first after that, whose clock is ahead: offsets alone do not show it.
func TestLossBehindRecordsOfAnother(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a := open(t, opts)
	opts.Now = func() time.Time { return time.Now().Add(time.Hour) }
	ahead := open(t, opts)
	publish(t, a, kept("1"))
	subscribe(t, a, nil) // it has arrived
	server.Restart()
	publish(t, ahead, &bridge.Record{Event: "aside"})
	subscribe(t, ahead, nil)
	publish(t, a, kept("2"))
	subscribe(t, a, nil)
	require.Equal(t, bridge.RecordGap, subscribe(t, ahead, &bridge.Offset{}).Gap(runA))
	publish(t, a, kept("3"))
	three := subscribe(t, ahead, &bridge.Offset{})
	require.Equal(t, []string{"2", "3"}, events(t, three, 2))
	again := subscribe(t, ahead, &bridge.Offset{MS: 1 << 60})
	require.Equal(t, bridge.RecordGap, again.Gap(runA))
}

// During an outage of Redis publishing continues, within limits: tokens are dropped first, then all records. Subscriptions end; new
// ones return the remaining records and report the gap.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		make   func(string) *bridge.Record
		bytes  int
		gap    bridge.Gap
		atMost int
	}{
		{"all fits", kept, 100, bridge.NoGap, 101},
		{"tokens are dropped", token, 100_000, bridge.TokenGap, 100},
		{"records are dropped", kept, 100_000, bridge.RecordGap, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			opts := redis.Options{URL: server.URL, Outage: 300 * time.Millisecond, QueueBytes: 1 << 20}
			a, b := open(t, opts), open(t, opts)
			s := subscribe(t, b, nil)
			first := kept("first")
			publish(t, a, first)
			require.Equal(t, []string{"first"}, events(t, s, 1))
			server.Stop()
			require.Empty(t, interrupted(t, s))
			_, err := b.Subscribe(t.Context(), thread, nil)
			require.ErrorIs(t, err, bridge.ErrInterrupted)
			require.ErrorIs(t, err, bridge.ErrSlow, "whoever knows of no interruptions comes again all the same")
			for i := range 100 {
				r := tt.make(strconv.Itoa(i))
				r.Data = make([]byte, tt.bytes)
				publish(t, a, r)
			}
			server.Restart()
			// When what waited is in, this instance can subscribe.
			subscribe(t, a, nil)
			again := subscribe(t, b, &first.Offset)
			require.Equal(t, tt.gap, again.Gap(runA))
			end := &bridge.Record{Run: runA, Event: "end", Kind: bridge.Terminal, Kept: true}
			publish(t, a, end)
			var got []string
			for len(got) == 0 || got[len(got)-1] != "end" {
				got = append(got, events(t, again, 1)...)
			}
			require.LessOrEqual(t, len(got), tt.atMost)
			require.Equal(t, "0", got[0])
		})
	}
}

// Readers who did not lose their connection learn as well that the publisher had to drop something.
func TestDroppedIsNoticedLive(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	small := redis.Options{URL: server.URL, QueueBytes: 1000}
	a, b := open(t, small), open(t, redis.Options{URL: server.URL})
	s := subscribe(t, b, nil)
	first := kept("first")
	large := kept("large")
	large.Data = make([]byte, 2000)
	publish(t, a, first, large)
	require.Subset(t, []string{"first"}, interrupted(t, s))
	again := subscribe(t, b, &first.Offset)
	require.Equal(t, bridge.RecordGap, again.Gap(runA))
	require.Equal(t, bridge.NoGap, again.Gap("other"))
}

// However many readers there are, and on however many threads, the connections stay as few.
func TestConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL, Connections: 5})
	const readers = 2000
	subs := make([]bridge.Subscription, readers)
	var wg sync.WaitGroup
	next := atomic.Int64{}
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < readers; i = next.Add(1) - 1 {
				s, err := b.Subscribe(t.Context(), id.Thread(strconv.FormatInt(i, 10)), nil)
				if err != nil {
					t.Error(err)
					return
				}
				subs[i] = s
			}
		})
	}
	wg.Wait()
	for i := range readers {
		require.NoError(t, b.Publish(t.Context(), id.Thread(strconv.Itoa(i)), []*bridge.Record{kept(strconv.Itoa(i))}))
	}
	for i, s := range subs {
		require.Equal(t, []string{strconv.Itoa(i)}, events(t, s, 1))
	}
	clients, err := server.Client().ClientList(t.Context()).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(clients, "\n"), 5+1, "and the one that asks: %s", clients)
	for _, s := range subs {
		s.Close()
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	heard := make(chan redis.Signal, 10)
	listening := redis.Options{URL: server.URL, Heard: func(s redis.Signal) { heard <- s }}
	a, b := open(t, listening), open(t, redis.Options{URL: server.URL})
	subscribe(t, a, nil) // a reads by now
	publish(t, a, kept("x"))
	events(t, subscribe(t, a, &bridge.Offset{}), 1)
	require.NoError(t, a.Signal(t.Context(), redis.Signal{Kind: redis.Wake}), "its own it does not hear")
	want := redis.Signal{Kind: redis.Cancel, Thread: thread, Run: runA}
	for {
		require.NoError(t, b.Signal(t.Context(), want))
		select {
		case got := <-heard:
			require.Equal(t, want, got)
		case <-time.After(50 * time.Millisecond): // a may not have begun to listen
			continue
		}
		break
	}
	server.Stop()
	require.Error(t, b.Signal(t.Context(), want))
}

func TestPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "se cret")
	b := open(t, redis.Options{URL: "unix://:se%20cret@" + server.Socket})
	publish(t, b, kept("1"))
	require.Equal(t, []string{"1"}, events(t, subscribe(t, b, &bridge.Offset{}), 1))
	wrong := open(t, redis.Options{URL: server.URL, Outage: 50 * time.Millisecond})
	_, err := wrong.Subscribe(t.Context(), thread, nil)
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	_, err = redis.New(redis.Options{URL: "http://:secret@x"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	_, address, ca := redistest.StartTLS(t, "--requirepass", "secret")
	url := "rediss://:secret@" + address
	cert, err := os.ReadFile(ca)
	require.NoError(t, err)
	known := x509.NewCertPool()
	require.True(t, known.AppendCertsFromPEM(cert))
	b := open(t, redis.Options{URL: url, TLS: &tls.Config{RootCAs: known, MinVersion: tls.VersionTLS12}})
	publish(t, b, kept("1"))
	require.Equal(t, []string{"1"}, events(t, subscribe(t, b, &bridge.Offset{}), 1))
	stranger := open(t, redis.Options{URL: url, Outage: 50 * time.Millisecond})
	_, err = stranger.Subscribe(t.Context(), thread, nil)
	require.ErrorIs(t, err, bridge.ErrInterrupted, "a certificate that nobody vouches for")
}

// A user that may do what a bridge does, on its keys, and nothing else.
func TestUser(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "other", "--user", "bridge", "on", ">secret", "~understudy:*",
		"+@read", "+@write", "+@connection", "+@transaction", "+evalsha", "+script|load")
	b := open(t, redis.Options{URL: "unix://bridge:secret@" + server.Socket})
	s := subscribe(t, b, nil)
	end := kept("2")
	end.Kind = bridge.Terminal
	publish(t, b, kept("1"), end)
	require.Equal(t, []string{"1", "2"}, events(t, s, 2))
	require.Equal(t, []string{"1", "2"}, events(t, subscribe(t, b, &bridge.Offset{}), 2))
	require.NoError(t, b.Forget(t.Context(), thread, runA))
	require.NoError(t, b.Signal(t.Context(), redis.Signal{Kind: redis.Wake}))
	publish(t, b, kept("3"))
	require.Equal(t, []string{"3"}, events(t, s, 1))
	elsewhere := open(t, redis.Options{URL: "unix://bridge:secret@" + server.Socket, Prefix: "other", Outage: 50 * time.Millisecond})
	_, err := elsewhere.Subscribe(t.Context(), thread, nil)
	require.ErrorIs(t, err, bridge.ErrInterrupted, "keys that are not its own")
}

// What waits is sent before an instance ends.
func TestEndsInOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, err := redis.New(redis.Options{URL: server.URL})
	require.NoError(t, err)
	for i := range 1000 {
		publish(t, a, kept(strconv.Itoa(i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Run(ctx), context.Canceled)
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.Publish(t.Context(), thread, []*bridge.Record{kept("late")}), bridge.ErrClosed)
	require.Len(t, events(t, subscribe(t, open(t, redis.Options{URL: server.URL}), &bridge.Offset{}), 1000), 1000)
}

// A Redis that is full takes nothing for a while: what was published is there when it has room again.
func TestFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL, Outage: 100 * time.Millisecond})
	c := server.Client()
	publish(t, b, kept("1"))
	require.Equal(t, []string{"1"}, events(t, subscribe(t, b, &bridge.Offset{}), 1))
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	publish(t, b, kept("2"))
	_, err := b.Subscribe(t.Context(), thread, nil)
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s := subscribe(t, b, &bridge.Offset{})
	require.Equal(t, []string{"1", "2"}, events(t, s, 2))
	require.Equal(t, bridge.NoGap, s.Gap(""))
}

// What passed and has expired does not count as passing for ever: else all that came later would be dropped at once.
func TestPassedAndExpired(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL, Prefix: "p", LiveBytes: 2000})
	passes := func(bytes int) *bridge.Record {
		return &bridge.Record{Run: runA, Event: "x", Data: make([]byte, bytes)}
	}
	publish(t, b, passes(1000), passes(1000))
	subscribe(t, b, nil) // it has arrived
	c := server.Client()
	require.NoError(t, c.Del(t.Context(), "p:{t}:s", "p:{t}:k", "p:{t}:p", "p:{t}:r").Err(), "all but the counters")
	for n := range int64(3) {
		publish(t, b, passes(1))
		subscribe(t, b, nil)
		require.Equal(t, n+1, c.XLen(t.Context(), "p:{t}:s").Val())
	}
	require.Positive(t, c.PTTL(t.Context(), "p:{t}:p").Val(), "expires again")
}

// Keys that hold something else, or scripts that are flushed away, stop no other thread.
func TestStrangeKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL, Prefix: "p"})
	c := server.Client()
	require.NoError(t, c.Set(t.Context(), "p:{other}:m", "text", 0).Err())
	require.NoError(t, b.Publish(t.Context(), "other", []*bridge.Record{kept("lost")}))
	publish(t, b, kept("1"))
	require.Equal(t, []string{"1"}, events(t, subscribe(t, b, &bridge.Offset{}), 1))
	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	s := subscribe(t, b, &bridge.Offset{})
	publish(t, b, kept("2"))
	require.Equal(t, []string{"1", "2"}, events(t, s, 2))
	require.NoError(t, c.XAdd(t.Context(), xadd("p:{t}:s")).Err())
	require.Empty(t, interrupted(t, s), "an entry that is none")
}

// A Redis that comes back with an older state than it had: what it lost is a gap for everybody who has not seen it, also for those who read from
// the beginning, and no more than that.
func TestRestartWithOlderFiles(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a, b := open(t, opts), open(t, opts)
	s := subscribe(t, b, nil)
	one, two, three := kept("1"), kept("2"), kept("3")
	publish(t, a, one)
	require.Equal(t, []string{"1"}, events(t, s, 1))
	require.NoError(t, server.Client().Save(t.Context()).Err())
	publish(t, a, two)
	require.Equal(t, []string{"2"}, events(t, s, 1))
	behind := subscribe(t, a, &one.Offset)
	require.Equal(t, []string{"2"}, events(t, behind, 1))
	server.Restart()
	require.Empty(t, interrupted(t, s))
	require.Equal(t, bridge.RecordGap, subscribe(t, b, &two.Offset).Gap(runA), "it has seen what Redis has not")
	publish(t, a, three)
	subscribe(t, a, nil) // it has arrived
	for _, from := range []bridge.Offset{{}, one.Offset} {
		again := subscribe(t, b, &from)
		require.Equal(t, bridge.RecordGap, again.Gap(runA))
		require.Equal(t, bridge.RecordGap, again.Gap(""))
		got := events(t, again, 1)
		require.Equal(t, "3", got[len(got)-1])
	}
	again := subscribe(t, b, &three.Offset)
	require.Equal(t, bridge.NoGap, again.Gap(runA))
	four := kept("4")
	publish(t, a, four)
	require.Equal(t, []string{"4"}, events(t, again, 1))
}

// What an attempt says after a newer one has begun is left out: an instance that stood still does not know yet. What others say of the thread does
// not move the offsets of a run.
func TestAttempts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a, b := open(t, opts), open(t, opts)
	s := subscribe(t, b, nil)
	say := func(by *redis.Bridge, attempt int, index int64, event string) *bridge.Record {
		r := &bridge.Record{Run: runA, Event: event, Data: []byte("{}"), Kept: true, Attempt: attempt, Index: index}
		publish(t, by, r)
		subscribe(t, by, nil) // it has arrived
		return r
	}
	say(a, 1, 1, "first")
	publish(t, b, &bridge.Record{Event: "aside", Data: []byte("{}")})
	subscribe(t, b, nil)
	second := say(a, 1, 2, "second")
	b.Advance("t", time.Now().Add(time.Hour).UnixMilli())
	say(b, 2, 1, "again")
	say(a, 1, 3, "late")
	say(b, 2, 2, "end")
	require.Equal(t, []string{"first", "aside", "second", "again", "end"}, events(t, s, 5))
	again := subscribe(t, a, &bridge.Offset{})
	var got []*bridge.Record
	for len(got) < 4 {
		records, err := again.Next(t.Context())
		require.NoError(t, err)
		got = append(got, records...)
	}
	require.Equal(t, second.Offset, got[1].Offset)
	for i, want := range [][2]int64{{1, 1}, {1, 2}, {2, 1}, {2, 2}} {
		require.Equal(t, want, [2]int64{int64(got[i].Attempt), got[i].Index})
	}
}

// A record that a publisher adds and drops at once wakes readers in vain. They learn of the gap with the next record.
func TestDroppedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{Options: bridge.Options{Records: 8}, URL: server.URL})
	s := subscribe(t, b, nil)
	for range 8 {
		publish(t, b, kept("a"))
	}
	events(t, s, 8)
	waits(t, server)
	publish(t, b, token("b"))
	subscribe(t, b, nil) // it has arrived
	publish(t, b, kept("c"))
	interrupted(t, s)
}

// waits blocks until a reader waits for new records.
func waits(t *testing.T, server *redistest.Server) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); server.Info("blocked_clients") == "0"; time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "nobody waits")
	}
}

// An instance that stood still, and says more than once what is left out, does not make its readers believe that Redis has lost something.
func TestOvertakenIsNoLoss(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redis.Options{URL: server.URL, Outage: time.Minute}
	a, b := open(t, opts), open(t, opts)
	s := subscribe(t, b, nil)
	say := func(by *redis.Bridge, attempt int, index int64, event string) {
		publish(t, by, &bridge.Record{Run: runA, Event: event, Data: []byte("{}"), Kept: true, Attempt: attempt, Index: index})
		subscribe(t, by, nil) // it has arrived
	}
	say(a, 1, 1, "first")
	say(b, 2, 1, "again")
	for n := range int64(3) {
		say(a, 1, 2+n, "late")
	}
	say(b, 2, 2, "end")
	require.Equal(t, []string{"first", "again", "end"}, events(t, s, 3))
	require.Equal(t, bridge.NoGap, subscribe(t, b, &bridge.Offset{}).Gap(runA))
}

// Most runs have nothing kept when they are forgotten: what is kept of others is not read for them.
func TestForgetReadsNothingInVain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL})
	s := subscribe(t, b, nil)
	client := goredis.NewClient(&goredis.Options{Network: "unix", Addr: server.Socket})
	defer client.Close()
	publish(t, b, kept("1"))
	events(t, s, 1)
	require.NoError(t, client.ConfigResetStat(t.Context()).Err())
	forget := func(r id.Run, behind string) string {
		require.NoError(t, b.Forget(t.Context(), thread, r))
		passing := kept(behind)
		passing.Kept = false
		publish(t, b, passing)
		events(t, s, 1)
		stats, err := client.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		return stats
	}
	require.NotContains(t, forget("other", "2"), "cmdstat_lrange:")
	require.Contains(t, forget(runA, "3"), "cmdstat_lrange:", "a run that is kept")
}
