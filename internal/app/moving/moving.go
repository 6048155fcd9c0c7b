package moving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/internal/app/advice"
	"understudy/internal/app/backend"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/encryption"
	"understudy/internal/serverurl"
	"understudy/storage/deerflow"
	"understudy/storage/langgraph"
	"understudy/storage/postgres"
	"understudy/storage/sqlite"
	"understudy/transfer"
)

// Import says what to move in, and how.
type Import struct {
	// From is a Postgres address (postgres://…) of LangGraph's savers, of DeerFlow or of this program, a file of SqliteSaver, the folder of a DeerFlow
	// installation, a data folder of this program, or the URL of a server.
	From string
	// Header goes with every request to a server.
	Header http.Header
	// Graph is that of threads whose checkpoints do not name one; "" leaves it open.
	Graph string
	// Rename gives graphs of the source other names here.
	Rename transfer.GraphNames
	// Progress receives the progress; may be nil.
	Progress transfer.Progress
	// Wait is called with what a server is waited for, and what it returns when that has come; may be nil.
	Wait func(what string) (end func())
}

// Export says where to move everything to.
type Export struct {
	// To is a Postgres address (postgres://…) or a file for SqliteSaver, which is made when it is not there.
	To       string
	Progress transfer.Progress
}

// Place is the source without passwords, for messages.
func (o Import) Place() string {
	if isPostgres(o.From) {
		return cmp.Or((&config.Config{Storage: config.Storage{DatabaseURL: o.From}}).DatabasePlace(), "a database")
	}
	if isServer(o.From) {
		u, err := serverurl.Parse(o.From)
		if err != nil {
			return "a server"
		}
		return u.Redacted()
	}
	return o.From
}

// Place is the target without passwords, for messages.
func (o Export) Place() string { return Import{From: o.To}.Place() }

// Run moves conversations into the data folder or database of cfg. No server may be running on the folder. See package transfer.
func (o Import) Run(ctx context.Context, cfg *config.Config, log *slog.Logger) (result *transfer.Result, err error) {
	src, err := openSource(ctx, o, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if folder, ok := src.(*sqlite.Folder); ok && cfg.Storage.DatabaseURL == "" && folder.Is(cfg.Storage.Data) {
		return nil, fmt.Errorf("%s is the data folder itself: name another one with --data", cfg.Storage.Data)
	}
	rows, err := openData(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = filled(cfg, errors.Join(err, rows.Close())) }()
	backfill := eventstore.NewBackfiller(rows)
	backfill.Keys = overlay.New(rows, backend.OverlayConfig(cfg.History)).Key
	m := transfer.Importer{
		Target: rows.Transfer(), Assistants: rows.Assistants(), Items: rows.Items(), Backfill: backfill, Graph: o.Graph, Rename: o.Rename,
		Progress: o.Progress,
	}
	for i := range cfg.Graphs {
		m.Graphs = append(m.Graphs, cfg.Graphs[i].ID)
	}
	installation, ok := src.(*deerflow.Installation)
	if !ok {
		return m.Run(ctx, src)
	}
	m.Graphs = graphsWith(m.Graphs)
	if result, err = m.Run(ctx, src); err != nil {
		return result, err
	}
	if err := moveAccounts(ctx, installation, rows, result); err != nil {
		return result, err
	}
	if err := moveRuns(ctx, installation, rows, result); err != nil {
		return result, err
	}
	return result, moveMemories(ctx, homeOf(o.From, cfg), rows, log, result)
}

// Run moves everything out of the data folder or database of cfg. Servers may be running on it: then what it holds at the beginning of each thread
// is moved.
func (o Export) Run(ctx context.Context, cfg *config.Config) (result *transfer.Result, err error) {
	from, err := openToRead(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var to transfer.Sink
	if isPostgres(o.To) {
		to, err = langgraph.OpenPostgresSink(ctx, o.To)
		err = unreachable("--to", o.To, err)
	} else if isServer(o.To) {
		return nil, errors.New("export writes to postgres://… or a file; to move threads to another server, run import there with this one as --from")
	} else {
		to, err = langgraph.OpenSQLiteSink(ctx, o.To)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	x := transfer.Exporter{Source: from, Progress: o.Progress}
	return x.Run(ctx, to)
}

// openToRead opens the data folder or database to move out of it.
func openToRead(ctx context.Context, cfg *config.Config) (transfer.Source, error) {
	if cfg.Storage.DatabaseURL != "" {
		rows, err := postgres.OpenDatabase(ctx, postgres.Options{URL: cfg.Storage.DatabaseURL, Keys: cfg.Storage.Keys})
		if errors.Is(err, postgres.ErrNotOurs) {
			return nil, errors.New("the database has nothing of this program to export: name another with --database-url, or a data folder with --data")
		}
		if err != nil {
			return nil, unreachable(cfg.Where("database-url"), cfg.Storage.DatabaseURL, err)
		}
		return rows, readable(ctx, cfg, rows)
	}
	folder, err := sqlite.OpenFolder(ctx, cfg.Storage.Data, cfg.Storage.Keys...)
	if errors.Is(err, sqlite.ErrNoFolder) {
		return nil, fmt.Errorf("%s has no database to export: name the data folder with --data, or a database with --database-url", cfg.Storage.Data)
	}
	if err != nil {
		return nil, err
	}
	return folder, readable(ctx, cfg, folder)
}

// IsThere returns an error when nothing has been stored in the data folder or database: to make it would hide that another one is meant.
func IsThere(ctx context.Context, cfg *config.Config) error {
	if cfg.Storage.DatabaseURL != "" {
		found, err := postgres.IsOurs(ctx, postgres.Options{URL: cfg.Storage.DatabaseURL})
		if err == nil && !found {
			return errors.New("the database has nothing of this program: name another with --database-url, or a data folder with --data")
		}
		return unreachable(cfg.Where("database-url"), cfg.Storage.DatabaseURL, err)
	}
	if cfg.Storage.Data == sqlite.InMemory {
		return ErrNotFolder
	}
	if !sqlite.HasDatabase(cfg.Storage.Data) {
		return fmt.Errorf("%s has no database: name the data folder with --data, or a database with --database-url", cfg.Storage.Data)
	}
	return nil
}

// sealedSource is a source whose content handlers of encryption.path may have encrypted.
type sealedSource interface {
	transfer.Source
	UseHandlers(ctx context.Context, h encryption.Handlers) error
}

// readable makes what handlers have encrypted readable. On an error it closes the source.
func readable(ctx context.Context, cfg *config.Config, rows sealedSource) error {
	handlers, err := graphs.StartEncryption(ctx, cfg, nil)
	if err == nil && handlers != nil {
		err = errors.Join(rows.UseHandlers(ctx, handlers), handlers.Close())
	}
	if err != nil {
		err = errors.Join(err, rows.Close())
	}
	return err
}

// openData opens the database, or the data folder, to write into it.
func openData(ctx context.Context, cfg *config.Config, log *slog.Logger) (backend.Database, error) {
	if cfg.Storage.DatabaseURL == "" && cfg.Storage.Data == sqlite.InMemory {
		return nil, errors.New("an in-memory data folder is lost at exit: name one on disk with --data")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return backend.Open(ctx, cfg, backend.Options{Log: log})
}

// unreachable explains why no connection to the database that the setting names can be made. Other errors stay as they are.
func unreachable(setting, address string, err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	if p := advice.Database(setting, address, err); p != nil {
		return p
	}
	return err
}

func isPostgres(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://") || strings.Contains(s, "dbname=") || strings.HasPrefix(s, "host=")
}

// isServer reports whether s names a server, rightly or not. Without http:// it is one only if there is no file with that name.
func isServer(s string) bool {
	if lower := strings.ToLower(strings.TrimSpace(s)); strings.HasPrefix(lower, "http:") || strings.HasPrefix(lower, "https:") {
		return true
	}
	_, err := serverurl.Parse(s)
	if err == nil {
		_, err = os.Lstat(s)
		return errors.Is(err, os.ErrNotExist)
	}
	return false
}

// openSource recognizes the kind of a source by its form.
func openSource(ctx context.Context, o Import, cfg *config.Config) (transfer.Source, error) {
	switch {
	case isPostgres(o.From):
		src, err := openPostgres(ctx, o.From, cfg)
		return src, unreachable("--from", o.From, err)
	case isServer(o.From):
		return transfer.OpenServer(ctx, o.From, o.Header, o.Wait)
	}
	if strings.Contains(o.From, "://") {
		return nil, fmt.Errorf("%q is none of postgres://…, http://…, a file or a folder; write one such as postgres://me:secret@localhost/agents, http://127.0.0.1:2024 or checkpoints.sqlite", o.From)
	}
	folder, err := sqlite.OpenFolder(ctx, o.From, cfg.Storage.Keys...)
	if err == nil {
		return folder, nil
	}
	if !errors.Is(err, sqlite.ErrNoFolder) {
		return nil, err
	}
	if dir, is := ofLanggraphDev(o.From); is {
		return nil, fmt.Errorf("%s is what langgraph dev keeps, and only that reads it: run `langgraph dev` in %s, and import from the address that it prints: "+
			"understudy import --from http://127.0.0.1:PORT", o.From, dir)
	}
	file := cmp.Or(deerflow.Find(o.From), o.From)
	if err := otherFolder(file); err != nil {
		return nil, err
	}
	checkpoints, err := langgraph.OpenSQLite(ctx, file)
	if err != nil {
		return nil, err
	}
	return withDeerFlow(checkpoints, func() (*deerflow.Installation, error) { return deerflow.OpenSQLite(ctx, file, checkpoints) })
}

// otherFolder says what to name in place of the folder of a project; nil: it is none.
func otherFolder(path string) error {
	has := func(name string) bool { _, err := os.Stat(filepath.Join(path, name)); return err == nil }
	switch {
	case has(".understudy"):
		return fmt.Errorf("%s is the folder of a project; its data is in %s: name that one", path, filepath.Join(path, ".understudy"))
	case has("config.yaml") || has("backend"):
		return fmt.Errorf("%s has no database of DeerFlow, which is data/deerflow.db in .deer-flow or backend/.deer-flow, or where DEER_FLOW_HOME and `database` of config.yaml say: "+
			"name the folder or the file where it is, or the Postgres address", path)
	}
	return nil
}

// withDeerFlow returns the installation that checkpoints belong to, or the checkpoints if there is none.
func withDeerFlow(checkpoints transfer.Source, open func() (*deerflow.Installation, error)) (transfer.Source, error) {
	installation, err := open()
	switch {
	case err != nil:
		return nil, errors.Join(err, checkpoints.Close())
	case installation != nil:
		return installation, nil
	}
	return checkpoints, nil
}

// openPostgres distinguishes a database of this program from one of LangGraph's savers. One that is both, since it was there before, is read as the
// latter when it is also what is moved into: so threads of Python programs get what the API needs, where they are.
func openPostgres(ctx context.Context, from string, cfg *config.Config) (transfer.Source, error) {
	to := cfg.Storage.DatabaseURL
	ours, err := postgres.OpenDatabase(ctx, postgres.Options{URL: from, Keys: cfg.Storage.Keys})
	if errors.Is(err, postgres.ErrNotOurs) {
		return openForeign(ctx, from)
	}
	if err != nil {
		return nil, err
	}
	if to == "" {
		return ours, nil
	}
	same, err := ours.Is(ctx, to)
	if err == nil && !same {
		return ours, nil
	}
	err = errors.Join(err, ours.Close())
	if err == nil && !ours.Plain() {
		err = errors.New("this is the database itself: name another one with --database-url")
	}
	if err != nil {
		return nil, err
	}
	return openForeign(ctx, from)
}

// openForeign opens a Postgres database of LangGraph, or of DeerFlow.
func openForeign(ctx context.Context, from string) (transfer.Source, error) {
	checkpoints, err := langgraph.OpenPostgres(ctx, from)
	if err != nil {
		return nil, err
	}
	return withDeerFlow(checkpoints, func() (*deerflow.Installation, error) { return deerflow.OpenPostgres(ctx, from, checkpoints) })
}

// ofLanggraphDev reports whether the source is what `langgraph dev` keeps, pickles in .langgraph_api: a file there, that folder, or the project with
// it, in which it has to run.
func ofLanggraphDev(from string) (project string, is bool) {
	const folder, pickle = ".langgraph_api", ".pckl"
	at, err := filepath.Abs(from)
	if err != nil {
		return "", false
	}
	info, err := os.Stat(at)
	if err != nil {
		return "", false
	}
	if !info.IsDir() {
		head, err := head(at)
		if !strings.HasSuffix(at, pickle) && (err != nil || !strings.HasPrefix(head, "\x80\x04")) {
			return "", false
		}
		at = filepath.Dir(at)
		if filepath.Base(at) != folder {
			return at, true
		}
	}
	if filepath.Base(at) == folder {
		return filepath.Dir(at), true
	}
	if all, err := filepath.Glob(filepath.Join(at, folder, "*"+pickle)); err == nil && len(all) > 0 {
		return at, true
	}
	return "", false
}

func head(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 16)
	n, err := io.ReadFull(f, b)
	return string(b[:n]), err
}
