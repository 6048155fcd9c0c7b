package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/access/audit"
	"understudy/assistant"
	"understudy/auth"
	"understudy/deerflow"
	"understudy/deerflow/account"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/app/advice"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/encryption"
	"understudy/proxy/record"
	"understudy/run"
	"understudy/run/usage"
	"understudy/storage/postgres"
	"understudy/storage/sqlite"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
	"understudy/thread/search"
	"understudy/transfer"
)

// Database is what everything is kept in: a folder, or Postgres.
type Database interface {
	Assistants() assistant.Store
	Threads() thread.Store
	Runs() run.Store
	Items() store.Backend
	Transfer() transfer.Target
	Upstream() record.Store
	account.Store
	deerflow.Feedbacks
	auth.KeyStore
	auth.SessionStore
	audit.Store

	eventstore.Archive
	eventstore.Reader
	thread.LogStore
	mirror.Store
	readmodel.Store
	readmodel.Reader
	search.Store
	usage.RebuildStore

	// CursorKey returns a key that all servers of the database have: package cursor seals places in lists with it.
	CursorKey(ctx context.Context) ([]byte, error)
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
	Close() error
}

var (
	_ Database = (*sqlite.Store)(nil)
	_ Database = (*postgres.Store)(nil)
)

// Options are what a database gets in addition to its configuration. All but Log may be left out.
type Options struct {
	// Dir is the data folder, Schema the one of the Postgres database. "" is what the configuration and the address of the database name.
	Dir, Schema string
	Log         *slog.Logger // required
	Registry    prometheus.Registerer
	Now         func() time.Time    // the time of leases; nil: time.Now
	Changed     func([]id.Thread)   // gets threads whose log changed here
	Saved       func()              // is called after events were saved; nil: not called. It must not block
	Handlers    encryption.Handlers // of encryption.path; nil: Open starts them. They are closed with the database
	Changes     *changes.Hub        // gets what changes, here and on other servers; nil: nothing does
}

// quietFor is how long opening a database may take without a line in the log.
const quietFor = 2 * time.Second

// Open opens the database that the configuration names: with a DatabaseURL that one, else the data folder, which is made when it is missing. Of
// faults with a known remedy the error is an advice.Problem.
func Open(ctx context.Context, cfg *config.Config, o Options) (Database, error) {
	var touched, heard func([]changes.Change)
	if o.Changes != nil {
		touched, heard = o.Changes.Add, o.Changes.Heard
	}
	if o.Handlers == nil && cfg.Encrypts() {
		handlers, err := graphs.StartEncryption(ctx, cfg, o.Log)
		if err != nil {
			return nil, err
		}
		o.Handlers = handlers
	}
	if cfg.Storage.DatabaseURL == "" {
		rows, err := sqlite.Open(ctx, sqlite.Options{Handlers: o.Handlers, Dir: cmp.Or(o.Dir, cfg.Storage.Data), Synchronous: string(cfg.Storage.Synchronous), SearchTimeout: cfg.Storage.SearchTimeout, Changed: o.changed(), Touched: touched, Keys: cfg.Storage.Keys, Unindexed: cfg.Storage.UnindexedKeys, Logger: o.Log, Registry: o.Registry})
		if err != nil {
			return nil, explain(err, advice.Folder(cfg.Where("data"), cmp.Or(o.Dir, cfg.Storage.Data), err))
		}
		return rows, nil
	}
	if cfg.History.JSONL != "" {
		return nil, errors.New("history.jsonl needs a data folder and does not work with Postgres: remove one of the two")
	}
	// The settings of a program may not be validated, and the driver's message about an address can
	// contain a part of a password.
	if err := config.CheckPostgres(cfg.Storage.DatabaseURL); err != nil {
		return nil, fmt.Errorf("database-url: %w", err)
	}
	slow := time.AfterFunc(quietFor, func() {
		o.Log.Info("the database does not answer yet, or changes its tables", "database", cfg.DatabasePlace())
	})
	defer slow.Stop()
	rows, err := postgres.Open(ctx, postgres.Options{
		Handlers: o.Handlers, URL: cfg.Storage.DatabaseURL, Schema: o.Schema, Connections: cfg.Storage.Connections, StatementTimeout: cfg.Storage.StatementTimeout, Synchronous: string(cfg.Storage.Synchronous), SearchTimeout: cfg.Storage.SearchTimeout, Logger: o.Log, Registry: o.Registry, Keys: cfg.Storage.Keys, Unindexed: cfg.Storage.UnindexedKeys,
		Now:         o.Now,
		Changed:     o.changed(),
		Touched:     touched,
		Heard:       heard,
		IdleTimeout: cfg.Storage.Lease / 2, // a server that stands still lets go of its threads before its runs are taken over
	})
	if err != nil {
		return nil, explain(err, advice.Database(cfg.Where("database-url"), cfg.Storage.DatabaseURL, err))
	}
	return rows, nil
}

// Saves returns an error if the database answers and refuses to save, such as a replica. A full disk is none: only a server that runs can delete threads.
func Saves(ctx context.Context, cfg *config.Config, rows Database) error {
	err := rows.Ping(ctx)
	if errors.Is(err, sqlite.ErrFull) {
		return nil
	}
	return explain(err, advice.Database(cfg.Where("database-url"), cfg.Storage.DatabaseURL, err))
}

// changed is what a database calls when logs change; nil: nothing.
func (o *Options) changed() func([]id.Thread) {
	if o.Saved == nil {
		return o.Changed
	}
	return func(list []id.Thread) {
		o.Saved()
		if o.Changed != nil {
			o.Changed(list)
		}
	}
}

// explain returns what a person can do about err, if that is known.
func explain(err error, p *advice.Problem) error {
	if p == nil {
		return err
	}
	return p
}
