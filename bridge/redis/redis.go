package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	"understudy/bridge"
	"understudy/id"
)

// Options are the connection to Redis and the limits of the bridge. Zero fields mean the defaults.
type Options struct {
	bridge.Options

	URL string // redis://user:password@host:port/db, rediss:// with TLS, unix:///path
	// TLS, when not nil, replaces the configuration that rediss:// implies.
	TLS    *tls.Config
	Prefix string // of all keys: "understudy"
	// Connections is the maximum number of connections: 8. Two are always in use, the others while there are
	// subscriptions.
	Connections int
	// Keep is how long the records of a run that never ended are kept: 24 h.
	Keep time.Duration
	// LiveRecords, LiveBytes and LiveTTL limit, per thread, the records that are not kept for replay but that some server may not have read
	// yet: 100,000, 64 MiB and 30 s. Servers read at once what they have subscribers for, so this covers pauses of a server, not slow clients.
	LiveRecords int
	LiveBytes   int64
	LiveTTL     time.Duration
	// QueueBytes limits the queue of records to send: 64 MiB.
	QueueBytes int64
	// Outage is how long Redis may be unavailable before subscriptions end, and no new ones begin: 3 s. One that hangs has at least a second.
	Outage time.Duration
	// Frame encodes records that come from Redis for SSE; nil: their Frame is nil.
	Frame func(event string, data []byte) []byte
	// Heard is called for the signals of other servers, in order. It must not block. nil: signals are ignored.
	Heard func(Signal)
	Log   *slog.Logger // nil: nothing is logged
	// Registry registers the metrics of the connection to Redis; nil: not exported. Those of the streams are bridge.Options.Metrics.
	Registry prometheus.Registerer
}

func (o Options) withDefaults() Options {
	o.Records = cmp.Or(o.Records, 10_000)
	o.Bytes = cmp.Or(o.Bytes, 64<<20)
	o.TTL = cmp.Or(o.TTL, time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Prefix = cmp.Or(o.Prefix, "understudy")
	o.Connections = max(cmp.Or(o.Connections, 8), 3)
	o.Keep = cmp.Or(o.Keep, 24*time.Hour)
	o.LiveRecords = cmp.Or(o.LiveRecords, 100_000)
	o.LiveBytes = cmp.Or(o.LiveBytes, 64<<20)
	o.LiveTTL = cmp.Or(o.LiveTTL, 30*time.Second)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.Outage = cmp.Or(o.Outage, 3*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Options.Log = o.Log
	if o.Metrics == nil {
		o.Metrics = bridge.NewMetrics(nil)
	}
	return o
}

// Bridge is a bridge.Bridge over Redis. It works only while Run runs.
type Bridge struct {
	opts     Options
	client   *goredis.Client
	local    *bridge.Memory // the subscriptions on this server
	instance string
	queue    *queue
	reader   *reader
	metrics  *metrics

	closed chan struct{}
	close  sync.Once
}

var _ bridge.Remote = (*Bridge)(nil)

// silent replaces the logger of go-redis, which would write to standard error what this package logs.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { goredis.SetLogger(silent{}) })

// New returns a Bridge without connecting to Redis; Run connects. If err is nil, the caller must call Close.
func New(opts Options) (*Bridge, error) {
	silence()
	opts = opts.withDefaults()
	o, err := goredis.ParseURL(opts.URL)
	if err != nil {
		// The text of the parser's error may contain the password.
		return nil, errors.New("write the Redis address as redis://user:password@host:port/db, rediss://… or unix:///path")
	}
	if opts.TLS != nil {
		o.TLSConfig = opts.TLS
	}
	o.PoolSize, o.PipelinePoolSize = opts.Connections, -1 // one pool for all
	o.MaxRetries = -1                                     // this package decides on retries
	o.DialTimeout, o.DialerRetries = 2*time.Second, 1
	o.ReadTimeout, o.WriteTimeout = 5*time.Second, 5*time.Second
	o.ContextTimeoutEnabled = true
	// Connections must not move to another Redis silently, and the client's code for that races with the reader's own
	// connection.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	b := &Bridge{
		opts: opts, client: goredis.NewClient(o), local: bridge.NewMemory(opts.Options), instance: uuid.NewString(), closed: make(chan struct{}),
	}
	b.queue = newQueue(b)
	b.reader = newReader(b)
	b.metrics = newMetrics(opts.Registry, b)
	return b, nil
}

// Run sends, reads and sweeps until ctx ends, and returns its cause. Queued records are sent before it returns, if Redis is
// available.
func (b *Bridge) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.queue.run(gctx) })
	g.Go(func() error { return b.reader.run(gctx) })
	g.Go(func() error { return b.local.Run(gctx) })
	return g.Wait()
}

// Publish implements bridge.Bridge. It adds the records to the queue. When the queue is half full because Redis is slower than the
// publishers, Publish waits. When Redis is unavailable it does not wait, and records beyond the limit are dropped.
func (b *Bridge) Publish(ctx context.Context, t id.Thread, records []*bridge.Record) error {
	if b.isClosed() {
		return bridge.ErrClosed
	}
	if len(records) > 0 {
		b.queue.publish(ctx, t, records)
	}
	return nil
}

// Flush implements bridge.Remote.
func (b *Bridge) Flush(ctx context.Context, t id.Thread) error { return b.queue.flush(ctx, t) }

// FlushEnd implements bridge.Remote.
func (b *Bridge) FlushEnd(ctx context.Context, t id.Thread, end *bridge.Record) (bridge.Offset, error) {
	err := b.queue.flush(ctx, t)
	return b.queue.landed(t, end), err
}

// Advance implements bridge.Bridge.
func (b *Bridge) Advance(t id.Thread, ms int64) { b.queue.advance(t, ms) }

// Forget implements bridge.Bridge. It takes effect after the records published before it.
func (b *Bridge) Forget(_ context.Context, t id.Thread, r id.Run) error {
	if b.isClosed() {
		return bridge.ErrClosed
	}
	b.queue.forget(t, r, "")
	return nil
}

// ForgetThread implements bridge.Bridge, as Forget does.
func (b *Bridge) ForgetThread(_ context.Context, t id.Thread, until bridge.Offset) error {
	if b.isClosed() {
		return bridge.ErrClosed
	}
	b.queue.forget(t, "", until.String())
	return nil
}

// Close implements bridge.Bridge.
func (b *Bridge) Close() error {
	var err error
	b.close.Do(func() {
		close(b.closed)
		_ = b.local.Close()
		err = b.client.Close()
	})
	return err
}

func (b *Bridge) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// patience is how long to wait for a reply of Redis. It is at least a second, because a busy machine is not an outage.
func (b *Bridge) patience() time.Duration { return max(b.opts.Outage, time.Second) }

// key returns a key that belongs to no thread.
func (b *Bridge) key(name string) string { return b.opts.Prefix + ":" + name }

// keys returns the keys of a thread in the order of the scripts. The first is its stream.
func (b *Bridge) keys(t id.Thread) []string {
	tag := b.opts.Prefix + ":{" + string(t) + "}:"
	return []string{tag + "s", tag + "m", tag + "k", tag + "p", tag + "r"}
}

var (
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/publish.lua
	publishLua string
	//go:embed lua/forget.lua
	forgetLua string
	//go:embed lua/look.lua
	lookLua string

	publishScript = goredis.NewScript(commonLua + publishLua)
	forgetScript  = goredis.NewScript(commonLua + forgetLua)
	lookScript    = goredis.NewScript(commonLua + lookLua)
)

// loadScripts loads the scripts into Redis, which forgets them when it restarts.
func (b *Bridge) loadScripts(ctx context.Context) error {
	for _, s := range []*goredis.Script{publishScript, forgetScript, lookScript} {
		if err := s.Load(ctx, b.client).Err(); err != nil {
			return fmt.Errorf("load scripts: %w", err)
		}
	}
	return nil
}

// times returns the common first arguments of all scripts: the time, the retention periods, and this server's id.
func (b *Bridge) times() []any {
	return []any{b.queue.now(), b.opts.TTL.Milliseconds(), b.opts.Keep.Milliseconds(), b.instance}
}
