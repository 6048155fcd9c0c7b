package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/proxy"
	"understudy/proxy/record"
	"understudy/server"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// ProxyConfig is what a Proxy is made of.
type ProxyConfig struct {
	Settings *config.Config // required; Settings.Upstream too
	Log      *slog.Logger   // nil: nothing is logged
	Version  string         // of the program
}

// Proxy stands in front of a LangGraph Server: listening since NewProxy, working while Run.
type Proxy struct {
	cfg      *config.Config
	log      *slog.Logger
	listener net.Listener
	certs    port
	rows     backend.Database
	mirror   *mirror.Mirror // nil when there is none
	recorder *record.Recorder
	upstream *proxy.Upstream
	offline  *proxy.Offline // nil without --offline-reads
	http     *proxy.Proxy
}

// NewProxy opens the port and the storage of recordings. After a nil error call Run or Close. The
// upstream may be down. OfflineReads is an error if the upstream requires credentials.
func NewProxy(ctx context.Context, c ProxyConfig) (*Proxy, error) {
	if c.Settings == nil || c.Settings.Upstream.URL == nil {
		return nil, errors.New("app: ProxyConfig.Settings with an Upstream is required")
	}
	cfg := c.Settings
	p := &Proxy{cfg: cfg, log: c.Log}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if p.listener, err = net.Listen("tcp", net.JoinHostPort(cfg.Server.Host, strconv.Itoa(cfg.Server.Port))); err != nil {
		return nil, err
	}
	if p.certs, err = certificates(cfg, p.log, nil); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.assemble(ctx, c.Version); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// assemble makes the parts and ties them together.
func (p *Proxy) assemble(ctx context.Context, version string) error {
	cfg := p.cfg
	var err error
	dir, schema := upstreamPlace(cfg)
	var changes *eventstore.Changes
	var changed func([]id.Thread)
	if cfg.History.JSONL != "" {
		changes = eventstore.NewChanges()
		changed = changes.Add
	}
	registry := prometheus.NewRegistry()
	if p.rows, err = backend.Open(ctx, cfg, backend.Options{Dir: dir, Schema: schema, Log: p.log, Registry: registry, Changed: changed}); err != nil {
		return err
	}
	if changes != nil {
		p.mirror = mirror.New(mirror.Options{Dir: cfg.History.JSONL, Store: p.rows, Changes: changes, Encode: compat.AppendEvent, Log: p.log})
	}
	p.upstream = proxy.NewUpstream(cfg.Upstream.URL, int64(cfg.Upstream.MaxRewrite))
	if cfg.Upstream.OfflineReads {
		if err := p.checkOffline(ctx, dir); err != nil {
			return err
		}
	}
	p.recorder = record.New(record.Options{Store: p.rows.Upstream(), Ask: p.upstream.Ask, Overlay: backend.OverlayConfig(cfg.History), Log: p.log})
	own := server.New(server.Options{
		Events: recorded{p.recorder}, Logger: p.log, Registry: registry, Version: version, CORS: corsOf(cfg.HTTP.CORS), Studio: cfg.Server.Studio,
		Disable: server.Disable{Assistants: true, Store: true, Meta: true, MCP: true, A2A: true, OpenAI: true},
	})
	pages := ""
	if cfg.Server.Studio {
		pages = server.StudioPath
	}
	p.http = proxy.New(proxy.Config{
		Pages:    pages,
		Upstream: p.upstream, Recorder: p.recorder, Own: own, CORS: own.CORS, Host: proxy.HostPolicy(cfg.Upstream.Host), Offline: p.offline,
		Logger: p.log, Registry: registry, MaxRewrite: int64(cfg.Upstream.MaxRewrite),
	})
	return nil
}

// checkOffline sends requests without credentials to the upstream and interprets the responses.
func (p *Proxy) checkOffline(ctx context.Context, dir string) error {
	if dir == sqlite.InMemory {
		dir = ""
	} else if err := os.MkdirAll(dir, 0o700); err != nil { // recordings may be in a database
		return err
	}
	p.offline = proxy.NewOffline(p.upstream, dir)
	since, err := p.offline.Check(ctx)
	switch {
	case errors.Is(err, proxy.ErrGuarded):
		return fmt.Errorf("--offline-reads would show conversations to callers without credentials: %w. Start without it", err)
	case err != nil && since.IsZero():
		p.log.Warn("offline reads disabled: the upstream is down and was never seen without authentication; checking again when it responds", "error", err)
	case err != nil:
		p.log.Warn("offline reads enabled: the upstream is down, and required no credentials when last checked", "asked", since, "error", err)
	}
	return nil
}

// upstreamPlace is where the recordings of an upstream are: in a folder, or schema, for each name, or else for each address.
func upstreamPlace(cfg *config.Config) (dir, schema string) {
	key, shown := cfg.Upstream.Name, cfg.Upstream.Name
	if key == "" {
		key, shown = cfg.Upstream.URL.String(), cfg.Upstream.URL.Host
	}
	sum := sha256.Sum256([]byte(key))
	slug := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(shown), "-"), "-")
	digest := hex.EncodeToString(sum[:4])
	// Names of schemas have 63 characters at most.
	dir, schema = cfg.Storage.Data, "upstream_"+notName.ReplaceAllString(slug[:min(len(slug), 40)], "_")+"_"+digest
	if cfg.Storage.Data != sqlite.InMemory {
		dir = filepath.Join(cfg.Storage.Data, "upstreams", slug[:min(len(slug), 60)]+"-"+digest)
	}
	return dir, schema
}

var (
	notSlug = regexp.MustCompile(`[^a-z0-9.]+`)
	notName = regexp.MustCompile(`[^a-z0-9]+`)
)

// Addr is where the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// Run serves until ctx ends: then streams are cut, so that their readers come back, other calls get ten seconds, and what was seen is
// recorded. It closes the Proxy.
func (p *Proxy) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, p.Close()) }()
	// Recording and storage live until the last call has ended.
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var lower errgroup.Group
	lower.Go(func() error { return notCanceled(p.recorder.Run(below)) })
	if p.mirror != nil {
		lower.Go(func() error { return p.mirror.Run(below) })
	}
	upper, uctx := errgroup.WithContext(ctx)
	upper.Go(func() error { return p.http.Serve(uctx, p.certs.listen(p.listener)) })
	upper.Go(func() error { return p.certs.run(uctx) })
	upper.Go(func() error { return notCanceled(p.upstream.Watch(uctx, 10*time.Second, p.log)) })
	// What is left of long threads that were forgotten. Threads here have no time after which they go.
	upper.Go(func() error {
		return notCanceled(thread.NewService(thread.Options{Store: p.rows.Threads(), Log: p.log}).Sweep(uctx))
	})
	if p.offline != nil {
		upper.Go(func() error { return notCanceled(p.offline.Watch(uctx, time.Minute)) })
	}
	err = upper.Wait()
	stop()
	return errors.Join(notCanceled(err), lower.Wait())
}

// Close releases the port and the storage. Run does it too; Close may be called twice.
func (p *Proxy) Close() error {
	errs := []error{}
	if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
		errs = append(errs, err)
	}
	if p.rows != nil {
		errs = append(errs, p.rows.Close())
	}
	return errors.Join(errs...)
}

// recorded serves the routes for messages and events to any caller.
type recorded struct{ r *record.Recorder }

func (r recorded) Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	return r.r.Messages(ctx, proxy.CallOf(ctx), q)
}

func (r recorded) Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	return r.r.Events(ctx, proxy.CallOf(ctx), q)
}

var _ http.Handler = (*server.Server)(nil)
