package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"understudy/bridge"
	"understudy/id"
)

const (
	// readCount is how many entries of one stream a read takes at most.
	readCount = 512
	// readBlock is how long a read blocks. Goroutines that change the set of streams wake it earlier.
	readBlock = 5 * time.Second
	// readLinger is the minimum interval between reads when many streams have new records: each read asks for all streams.
	readLinger = 10 * time.Millisecond
)

// reader reads all streams with subscribers on this server. run owns the reading.
type reader struct {
	b       *Bridge
	process string // that the last connection went to; "": there was none. Owned by run

	mu      sync.Mutex // guards streams and their contents; never held while reading
	streams map[id.Thread]*following
}

// following is the read position of a stream.
type following struct {
	key    string
	subs   int
	start  bridge.Offset // entries above it are read
	cursor bridge.Offset // of the last entry
	count  int64         // its number
	born   bridge.Offset // of the first entry that the stream has had; zero: not known
}

func newReader(b *Bridge) *reader { return &reader{b: b, streams: map[id.Thread]*following{}} }

// add starts reading a stream from a position, unless it is being read. It reports whether the reader must be woken, and the position
// from which the stream is read.
func (r *reader) add(t id.Thread, at position) (wakes bool, start bridge.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.streams[t]
	if f == nil {
		f = &following{key: r.b.keys(t)[0], start: at.last, cursor: at.last, count: at.count, born: at.born}
		r.streams[t] = f
		wakes = true
	}
	f.subs++
	return wakes, f.start
}

func (r *reader) remove(t id.Thread) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.streams[t]
	if f.subs--; f.subs == 0 {
		delete(r.streams, t)
	}
}

// control is the stream that wakes this server's reader.
func (r *reader) control() string { return r.b.key("wake:" + r.b.instance) }

// wake lets the reader return from a read, so that it looks at its streams again.
func (r *reader) wake(ctx context.Context) error {
	_, err := r.b.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		p.XAdd(ctx, &goredis.XAddArgs{Stream: r.control(), MaxLen: 1, Values: []any{"w", 1}})
		p.Expire(ctx, r.control(), time.Minute)
		return nil
	})
	return err
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) error {
	// A blocking read does not watch ctx.
	stop := context.AfterFunc(ctx, func() {
		waking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = r.wake(waking)
	})
	defer stop()
	var conn *goredis.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	wait := newBackoff()
	var since time.Time // Redis is away; zero while it is not
	logged := false
	woken, heard := "0-0", ""
	for ctx.Err() == nil && !r.b.isClosed() {
		began := time.Now()
		var err error
		if conn == nil {
			if conn, err = r.connect(ctx, &heard); err == nil && !since.IsZero() {
				r.b.opts.Log.InfoContext(ctx, "redis is back", "away", time.Since(since).Round(time.Millisecond).String())
				since = time.Time{}
			}
		}
		if err == nil {
			began = time.Now()
			err = r.read(ctx, conn, &woken, &heard)
		}
		if err == nil || ctx.Err() != nil || r.b.isClosed() {
			if err == nil {
				r.b.metrics.up.Store(true)
			}
			continue
		}
		r.b.metrics.up.Store(false)
		if conn != nil {
			_ = conn.Close()
			conn = nil
		}
		if since.IsZero() {
			wait.Reset()
			since, logged = time.Now(), false
			// A hanging Redis has been unavailable since the read should have ended.
			if due := began.Add(readBlock); due.Before(since) {
				since = due
			}
			r.b.opts.Log.WarnContext(ctx, "redis read failed", "error", err)
		}
		if !logged && time.Since(since) > r.b.opts.Outage {
			logged = true
			r.b.local.Interrupt("", everywhere)
		}
		select {
		case <-time.After(wait.Next()):
		case <-ctx.Done():
		case <-r.b.closed:
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	<-ctx.Done() // closed before its time
	return context.Cause(ctx)
}

// connect opens a connection for the reader, and verifies on it that the streams are the ones read before. The connection is never redialled
// silently: it breaks when Redis restarts or is replaced, even between two reads.
func (r *reader) connect(ctx context.Context, heard *string) (conn *goredis.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.b.patience())
	defer cancel()
	conn = r.b.client.Conn()
	if *heard == "" {
		*heard, err = r.latestSignal(ctx, conn)
	}
	if err == nil {
		err = r.verify(ctx, conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// read waits for entries of any stream and delivers them.
func (r *reader) read(ctx context.Context, conn *goredis.Conn, woken, heard *string) error {
	keys, ids := []string{r.control(), r.b.key("signals")}, []string{*woken, *heard}
	type asked struct {
		thread id.Thread
		as     *following
	}
	streams := map[string]asked{}
	r.mu.Lock()
	for t, f := range r.streams {
		streams[f.key] = asked{t, f}
		keys, ids = append(keys, f.key), append(ids, f.cursor.String())
	}
	r.mu.Unlock()
	answered, cancel := context.WithTimeout(ctx, readBlock+r.b.patience())
	defer cancel()
	found, err := conn.XRead(answered, &goredis.XReadArgs{Streams: append(keys, ids...), Count: readCount, Block: readBlock}).Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	full := func(s goredis.XStream) bool { return len(s.Messages) == readCount } // there is more
	if len(found) >= many && !slices.ContainsFunc(found, full) {
		defer rest(ctx, pause(len(found), readLinger)) // after delivery
	}
	for _, s := range found {
		if len(s.Messages) == 0 {
			continue // a script added and dropped entries at once: Redis 7.0 still returns the stream
		}
		last := s.Messages[len(s.Messages)-1].ID
		switch s.Stream {
		case keys[0]:
			*woken = last
		case keys[1]:
			*heard = last
			r.signals(s.Messages)
		default:
			r.hand(ctx, streams[s.Stream].thread, streams[s.Stream].as, s.Messages)
		}
	}
	return nil
}

// hand passes the records read from a stream to its subscriptions. Where entries are missing, subscriptions that waited for them end.
func (r *reader) hand(ctx context.Context, t id.Thread, f *following, messages []goredis.XMessage) {
	records := make([]*bridge.Record, 0, len(messages))
	var why error
	var where bridge.Offset // the last entry after a gap
	r.mu.Lock()
	if r.streams[t] != f { // it was dropped, and may have been added again at another position, from which it is read next
		r.mu.Unlock()
		return
	}
	for _, m := range messages {
		e, err := decode(m.ID, m.Values)
		if err != nil {
			offset, _ := parseOffset(m.ID)
			e = entry{Record: &bridge.Record{Offset: offset}, count: f.count, gap: true}
		}
		switch {
		case err != nil:
			why, where = err, e.Offset
		case e.gap:
			why, where = errDropped, e.Offset
		case e.count != f.count+1:
			why, where = fmt.Errorf("record %d follows record %d", e.count, f.count), e.Offset
		}
		if f.cursor, f.count = e.Offset, e.count; e.count == 1 {
			f.born = e.Offset
		}
		if e.gap {
			continue
		}
		if r.b.opts.Frame != nil {
			e.Frame = r.b.opts.Frame(e.Event, e.Data)
		}
		records = append(records, e.Record)
	}
	r.mu.Unlock()
	if why != nil {
		r.b.metrics.gaps.Inc()
		r.b.opts.Log.WarnContext(ctx, "stream has a gap; readers resume", "thread_id", t, "why", why)
		r.b.local.Interrupt(t, where)
	}
	r.b.local.Deliver(t, records)
}

var errDropped = errors.New("records were dropped before they were sent")

// verify checks that Redis is available, and that the streams are still the ones read before. A read of a stream that lost its entries would block
// in vain.
func (r *reader) verify(ctx context.Context, conn *goredis.Conn) error {
	r.mu.Lock()
	all := make(map[id.Thread]following, len(r.streams))
	for t, f := range r.streams {
		all[t] = *f
	}
	r.mu.Unlock()
	restarted := r.restarted(ctx, conn)
	pipe := conn.Pipeline()
	pipe.Ping(ctx)
	got := make(map[id.Thread]*goredis.SliceCmd, len(all))
	for t := range all {
		got[t] = pipe.HMGet(ctx, r.b.keys(t)[1], "c", "last", "born")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for t, had := range all {
		values := got[t].Val()
		text, _ := values[0].(string)
		count, _ := strconv.ParseInt(text, 10, 64)
		text, _ = values[1].(string)
		last, _ := parseOffset(text)
		text, _ = values[2].(string)
		born, _ := parseOffset(text)
		// A stream that was lost may have more entries again than it had, with lower offsets by another clock: these would never be read. One of which
		// nothing was read may have had entries before a restart.
		if count >= had.count && (had.born == born || had.born == bridge.Offset{}) && (had.count > 0 || !restarted) {
			continue
		}
		r.mu.Lock()
		if f := r.streams[t]; f != nil && f.count == had.count && f.cursor == had.cursor {
			f.start, f.cursor, f.count, f.born = last, last, count, born
		}
		r.mu.Unlock()
		r.b.local.Interrupt(t, everywhere)
	}
	return nil
}

// restarted reports whether Redis may be another process than on the last connection.
func (r *reader) restarted(ctx context.Context, conn *goredis.Conn) bool {
	last := r.process
	r.process = "not known" // a user may lack the right to ask
	if info, err := conn.InfoMap(ctx, "server").Result(); err == nil {
		r.process = info["Server"]["run_id"]
	}
	return last != "" && (last != r.process || r.process == "not known")
}

// everywhere is above all offsets. It interrupts all subscriptions.
var everywhere = bridge.Offset{MS: math.MaxInt64}

// isReply reports whether an error is a reply of Redis itself.
func isReply(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply)
}
