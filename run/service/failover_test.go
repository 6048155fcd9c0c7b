package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/redistest"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// overRedis gives the instances of a cluster a bridge each, over a Redis whose address may be another for each. ahead is by how much the clock of
// each is ahead; without it they agree. A Redis that does not answer for as long as outage is away.
func (c *cluster) overRedis(outage time.Duration, url func() string, ahead ...time.Duration) (bridges *[]*redis.Bridge) {
	bridges = &[]*redis.Bridge{}
	c.carry = func(bridge.Bridge) bridge.Bridge {
		o := redis.Options{URL: url(), Outage: outage}
		if n := len(*bridges); n < len(ahead) {
			o.Now = func() time.Time { return time.Now().Add(ahead[n]) }
		}
		b, err := redis.New(o)
		require.NoError(c.t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		c.t.Cleanup(func() {
			cancel()
			<-done
			_ = b.Close()
		})
		*bridges = append(*bridges, b)
		return b
	}
	return bridges
}

// slowly is an address that leads to a Redis, and what goes there waits for as long as pass does not return.
func slowly(t *testing.T, server *redistest.Server, pass func()) (url string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "slow-") // paths of sockets are short
	require.NoError(t, err)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	var group sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	group.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", server.Socket)
			if err != nil {
				_ = from.Close()
				continue
			}
			mu.Lock()
			open = append(open, from, to)
			mu.Unlock()
			group.Go(func() {
				defer to.Close()
				buffer := make([]byte, 1<<16)
				for {
					n, err := from.Read(buffer)
					if err != nil {
						return
					}
					pass()
					if _, err := to.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
			group.Go(func() {
				defer from.Close()
				_, _ = io.Copy(from, to)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		group.Wait()
		_ = os.RemoveAll(dir)
	})
	return "unix://" + filepath.Join(dir, "s")
}

// A run whose server is slow to send its last records ends after they have arrived: the next run of the thread, on another server, comes behind
// them, and the live stream has each record under the id that the database has.
func TestTheNextRunComesBehindTheRecordsOfTheLast(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var slow atomic.Bool
	c := newCluster(t)
	url := slowly(t, server, func() {
		if slow.Load() {
			<-time.After(500 * time.Millisecond)
		}
	})
	// A Redis that is slow, as on a busy machine, is not away.
	bridges := c.overRedis(time.Minute, func() string { defer func() { url = server.URL }(); return url })
	waiting := make(chan struct{})
	a := c.start(map[string]script{"g": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
		<-waiting
		slow.Store(true)
		emit("values", `{"n":1}`)
		return nil
	}}}, nil)
	b := c.start(map[string]script{"h": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
		emit("values", `{"n":2}`)
		return nil
	}}}, nil)
	th := a.newThread()
	sub, err := (*bridges)[1].Subscribe(t.Context(), th, nil)
	require.NoError(t, err)
	defer sub.Close()
	first, second := request("g"), request("h")
	first.Resumable, second.Resumable = true, true
	_, err = a.runs.Create(t.Context(), th, first)
	require.NoError(t, err)
	last, err := b.runs.Create(t.Context(), th, second)
	require.NoError(t, err)
	close(waiting)
	var live []string
	for ended := false; !ended; {
		records, err := sub.Next(t.Context())
		require.NoError(t, err)
		for _, rec := range records {
			live = append(live, fmt.Sprintf("%s %s %s %d", rec.Offset, rec.Event, rec.Data, rec.Index))
			ended = rec.Run == last.ID && rec.Kind == bridge.Terminal
		}
	}
	b.reaches(th, last.ID, run.Success)
	var stored []string
	require.Eventually(t, func() bool { // they are written behind the stream
		records, err := b.store.Records(t.Context(), th, bridge.Offset{}, 0)
		require.NoError(t, err)
		stored = nil
		for _, rec := range records {
			stored = append(stored, fmt.Sprintf("%s %s %s %d", rec.Offset, rec.Event, rec.Data, rec.Index))
		}
		return len(stored) >= len(live)
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, stored, live)
}

// told is a run of TestOutages, whose graph emits when it is told to.
type told struct {
	*run.Run
	emit    chan int
	emitted int
	durable bool
	readers []*listener
}

// listener is a reader of a run.
type listener struct {
	name string
	got  []string
	err  error
	done chan struct{}
}

// Whatever Redis does while runs go on: readers on the server that executes a run see all of it, each record once and in order, and its end, and are
// never interrupted. Readers elsewhere come again with their last id, and see the same. That the clock of another server, which publishes to the threads
// too, is wrong changes nothing.
func TestOutages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		ahead := []time.Duration{0, 5 * time.Minute, -5 * time.Minute, time.Second, 20 * time.Millisecond, 0}[seed]
		t.Run(fmt.Sprintf("%d, another clock ahead by %s", seed, ahead), func(t *testing.T) {
			t.Parallel()
			outages(t, rand.New(rand.NewPCG(seed, 13)), ahead)
		})
	}
}

func outages(t *testing.T, rnd *rand.Rand, ahead time.Duration) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	client := server.Client()
	c := newCluster(t)
	bridges := c.overRedis(150*time.Millisecond, func() string { return server.URL }, 0, ahead)
	var mu sync.Mutex
	orders := map[string]chan int{}
	a := c.start(map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		var input struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(inv.Input, &input); err != nil {
			return err
		}
		mu.Lock()
		order := orders[input.Name]
		mu.Unlock()
		for n := 0; ; {
			var count int
			select {
			case count = <-order:
			case <-ctx.Done():
			}
			if count == 0 { // closed
				return ctx.Err()
			}
			for range count {
				if n++; n%3 == 0 {
					emit("values", strconv.Itoa(n))
				} else {
					emit("messages", strconv.Itoa(n))
				}
			}
		}
	}}}, func(o *service.Options) { o.Jobs, o.Grace = 100, time.Millisecond })
	b := c.start(nil, nil)
	var group sync.WaitGroup
	t.Cleanup(group.Wait)

	// read follows until the end; with again it comes back with the last id when it is interrupted, and leaves now and then by itself.
	read := func(in *instance, r *told, l *listener, f run.Follower, last bridge.Offset, leave, again bool) {
		defer close(l.done)
		for pause := 0; ; {
			records, err := f.Next(t.Context())
			for _, rec := range records {
				if rec.Offset.Compare(last) <= 0 {
					l.err = fmt.Errorf("%s comes after %s", rec.Offset, last)
					return
				}
				last = rec.Offset
				if rec.Event != "metadata" {
					l.got = append(l.got, string(rec.Data))
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				f.Close(false)
				return
			case err != nil && !(again && errors.Is(err, bridge.ErrInterrupted)):
				f.Close(false)
				l.err = err
				return
			case err == nil && leave:
				if pause++; pause%4 > 0 {
					continue
				}
			case err == nil:
				continue
			}
			f.Close(false)
			for {
				f, err = in.runs.JoinStream(t.Context(), r.Thread, r.ID, &last, nil, false)
				if err == nil {
					break
				}
				if !again || !errors.Is(err, bridge.ErrInterrupted) {
					l.err = err
					return
				}
				<-time.After(10 * time.Millisecond) // a client waits longer
			}
		}
	}
	listen := func(in *instance, name string, r *told, f run.Follower, leave, again bool) {
		l := &listener{name: name, done: make(chan struct{})}
		r.readers = append(r.readers, l)
		group.Go(func() { read(in, r, l, f, bridge.Offset{}, leave, again) })
	}

	healthy, broken := true, func() {}
	spoil := func() {
		switch rnd.IntN(2) {
		case 0:
			require.NoError(t, client.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1").Err())
			broken = func() { require.NoError(t, client.Do(t.Context(), "CONFIG", "SET", "maxmemory", "0").Err()) }
		default:
			server.Stop()
			broken = server.Restart // it has forgotten everything
		}
		if rnd.IntN(3) > 0 { // long enough to be noticed
			for _, b := range *bridges {
				require.Eventually(t, func() bool {
					sub, err := b.Subscribe(t.Context(), "some", nil)
					if err == nil {
						sub.Close()
					}
					return errors.Is(err, bridge.ErrInterrupted)
				}, time.Minute, 5*time.Millisecond)
			}
		}
		healthy = false
	}
	var all, open []*told
	begin := func() {
		r := &told{emit: make(chan int, 1000)}
		name := strconv.Itoa(len(all))
		mu.Lock()
		orders[name] = r.emit
		mu.Unlock()
		req := request("g")
		req.Input = json.RawMessage(`{"name":"` + name + `"}`)
		req.Modes = []string{"values", "messages"}
		req.Resumable = rnd.IntN(3) > 0
		th := a.newThread()
		if rnd.IntN(4) == 0 {
			th = ""
		}
		r.durable = req.Resumable && th != ""
		row, f, err := a.runs.Start(t.Context(), th, req)
		require.NoError(t, err, "healthy: %v", healthy)
		r.Run = row
		all, open = append(all, r), append(open, r)
		listen(a, "beside", r, f, false, false)
		if r.durable {
			again, err := a.runs.JoinStream(t.Context(), row.Thread, row.ID, &bridge.Offset{}, nil, false)
			require.NoError(t, err)
			listen(a, "leaves", r, again, true, true)
		}
	}
	for step := 0; step < 120; step++ {
		switch k := rnd.IntN(12); {
		case k == 0 && healthy:
			spoil()
		case k == 1 && !healthy:
			broken()
			healthy = true
		case k < 4 && len(open) < 12:
			begin()
		case k == 4 && len(open) > 0: // by the clock of that server
			b.runs.PublishState(open[rnd.IntN(len(open))].Thread, "", json.RawMessage(`{}`))
		case k == 5 && len(open) > 0:
			i := rnd.IntN(len(open))
			close(open[i].emit)
			open = append(open[:i], open[i+1:]...)
		case k == 6 && len(open) > 0 && healthy:
			if r := open[rnd.IntN(len(open))]; r.durable {
				f, err := b.runs.JoinStream(t.Context(), r.Thread, r.ID, &bridge.Offset{}, nil, false)
				if errors.Is(err, bridge.ErrInterrupted) {
					continue // it is not noticed there yet that Redis is back
				}
				require.NoError(t, err)
				listen(b, "elsewhere", r, f, rnd.IntN(2) == 0, true)
			}
		case len(open) > 0:
			r, n := open[rnd.IntN(len(open))], 1+rnd.IntN(40)
			r.emit <- n
			r.emitted += n
		}
	}
	for _, r := range open {
		close(r.emit)
	}
	// Those here have all of it also when Redis stays away.
	for _, r := range all {
		for _, l := range r.readers {
			if l.name == "elsewhere" {
				continue
			}
			next(t, l.done)
		}
	}
	if !healthy {
		broken()
	}
	for _, r := range all {
		var want []string
		for n := range r.emitted {
			want = append(want, strconv.Itoa(n+1))
		}
		for _, l := range r.readers {
			next(t, l.done)
			require.NoError(t, l.err, "%s, durable: %v", l.name, r.durable)
			require.Equal(t, want, l.got, "%s, durable: %v, thread %s", l.name, r.durable, r.Thread)
		}
	}
}

// remote is a bridge in memory that is interrupted as one over Redis is.
type remote struct {
	*bridge.Memory
	away  atomic.Bool
	flush func() // called by FlushEnd; nil: nothing
}

// Subscribe implements bridge.Bridge.
func (r *remote) Subscribe(ctx context.Context, t id.Thread, after *bridge.Offset) (bridge.Subscription, error) {
	if r.away.Load() {
		return nil, bridge.ErrInterrupted
	}
	return r.Memory.Subscribe(ctx, t, after)
}

// Flush implements bridge.Remote.
func (r *remote) Flush(context.Context, id.Thread) error { return nil }

// FlushEnd implements bridge.Remote.
func (r *remote) FlushEnd(_ context.Context, _ id.Thread, end *bridge.Record) (bridge.Offset, error) {
	if r.flush != nil {
		r.flush()
	}
	return end.Offset, nil
}

// Whoever follows a run on the server that executes it is not interrupted with Redis, wherever it began, and whether the run can be replayed or not.
func TestReadersOfEveryKindAreNotInterrupted(t *testing.T) {
	t.Parallel()
	for _, resumable := range []bool{false, true} {
		for _, stateless := range []bool{false, true} {
			for from, after := range map[string]*bridge.Offset{"now": nil, "the beginning": {}} {
				t.Run(fmt.Sprintf("resumable %v stateless %v from %s", resumable, stateless, from), func(t *testing.T) {
					t.Parallel()
					redis, c := &remote{}, newCluster(t)
					c.carry = func(bridge.Bridge) bridge.Bridge {
						redis.Memory = c.bridge
						return redis
					}
					emits := make(chan string)
					in := c.start(map[string]script{"g": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
						for text := range emits {
							if text != "" {
								emit("custom", text)
							}
						}
						return nil
					}}}, nil)
					th, req := id.Thread(""), request("g")
					if req.Resumable = resumable; !stateless {
						th = in.newThread()
					}
					r, err := in.runs.Create(t.Context(), th, req)
					require.NoError(t, err)
					emits <- "1"
					emits <- "" // "1" was published
					f, err := in.runs.JoinStream(t.Context(), r.Thread, r.ID, after, nil, false)
					require.NoError(t, err)
					redis.away.Store(true)
					c.bridge.Interrupt("", bridge.Offset{MS: math.MaxInt64})
					emits <- "2"
					close(emits)
					want := []string{"custom 2"}
					if resumable && after != nil {
						want = []string{"custom 1", "custom 2"}
					}
					require.Equal(t, want, slices.DeleteFunc(in.events(f), func(event string) bool { return !strings.HasPrefix(event, "custom") }))
				})
			}
		}
	}
}

// A deleted thread ends the streams of its runs also for readers that have failed over, at once: not when the graph has stopped.
func TestReadersThatFailedOverEndWithTheirThread(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(here, elsewhere *instance, th id.Thread){
		"deleted here":            func(here, _ *instance, th id.Thread) { here.runs.ThreadDeleted(th) },
		"deleted elsewhere":       func(_, elsewhere *instance, th id.Thread) { elsewhere.runs.ThreadDeleted(th) },
		"found at a heartbeat":    func(*instance, *instance, id.Thread) {},
		"before it was published": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, c := &remote{}, newCluster(t)
			c.carry = func(bridge.Bridge) bridge.Bridge {
				redis.Memory = c.bridge
				return redis
			}
			began, emits, stops, gone := make(chan struct{}), make(chan string), make(chan struct{}), make(chan struct{})
			in := c.start(map[string]script{"g": {stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
				close(began)
				emit("custom", <-emits)
				select {
				case emits <- "":
				case <-ctx.Done(): // a heartbeat has found that the run is gone
					close(gone)
				}
				<-stops // however long it takes
				return nil
			}}}, func(o *service.Options) { o.Lease = time.Second })
			defer close(stops)
			another := c.start(nil, nil)
			th := in.newThread()
			r, err := in.runs.Create(t.Context(), th, request("g"))
			require.NoError(t, err)
			<-began
			f, err := in.runs.JoinStream(t.Context(), th, r.ID, nil, nil, false)
			require.NoError(t, err)
			redis.away.Store(true)
			c.bridge.Interrupt("", bridge.Offset{MS: math.MaxInt64})
			emits <- `"1"`
			got, _ := readSome(t, f, 1)
			require.Equal(t, []string{`custom "1"`}, got)
			require.NoError(t, in.store.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(th) }))
			if remove == nil { // the graph ends, and its end finds no run
				select {
				case <-emits:
				case <-gone:
				}
				stops <- struct{}{}
			} else {
				remove(in, another, th)
			}
			require.Empty(t, in.events(f))
		})
	}
}
