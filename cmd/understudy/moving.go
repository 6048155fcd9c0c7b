package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"understudy/internal/app/moving"
	"understudy/internal/config"
	"understudy/internal/loop"
	"understudy/transfer"
)

func newImport() *cobra.Command {
	var o moving.Import
	var headers, renames []string
	cmd := &cobra.Command{
		Use:   "import --from SOURCE",
		Short: "Move conversations in",
		Long: `Moves threads with all of their checkpoints, pending writes and transcripts, assistants and store
items into the data folder, or with --database-url into a Postgres database, as far as the source has
them. The source is only read.

SOURCE is one of
  postgres://user:password@host/database   of langgraph-checkpoint-postgres, or of understudy
  checkpoints.sqlite                       a file of langgraph-checkpoint-sqlite
  http://host:port                         LangGraph Server, understudy or its proxy
  other/.understudy                        a data folder, or a proxy's records of an upstream
  deer-flow                                a DeerFlow installation, also its accounts and feedback;
                                           or its deerflow.db, or its Postgres database

What was moved is read back and compared; what differs is named, and the exit status is 1. It can
be ended at any time and run again: it continues where it ended, and moves nothing twice.
Stop the server on the data folder first; servers on a database may run. docs/moving.md says what is kept and what is not.`,
		Example: `  understudy import --from postgres://me:secret@localhost/agents
  understudy import --from checkpoints.sqlite --graph agent
  understudy import --from https://example.com --header 'Authorization: Bearer …'
  understudy import --from .understudy --database-url postgres://me:secret@localhost/understudy`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&o.From, "from", "", "where to move from (`SOURCE`); required")
	cmd.Flags().StringVar(&o.Graph, "graph", "", "`NAME` of the graph of threads whose checkpoints do not name one (default the only graph of --config)")
	cmd.Flags().StringArrayVar(&renames, "rename", nil, "`OLD=NEW`: the graph OLD of the source is NEW here, also in what was moved earlier; repeatable")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "`'NAME: VALUE'` to send to a server; repeatable")
	load := dataFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.From == "" {
			return misused(cmd, "needs --from")
		}
		var err error
		if o.Header, err = parseHeaders(headers); err != nil {
			return err
		}
		if o.Rename, err = parseRenames(renames); err != nil {
			return misused(cmd, "%s", err)
		}
		return move(cmd, load, func(ctx context.Context, cfg *config.Config, p *begun) (*transfer.Result, error) {
			o.Progress, o.Wait = p, p.wait
			if o.Graph != "" {
				for _, w := range cfg.UnknownGraph("--graph", o.Graph) { // later imports would not change it
					return nil, usageError{errors.New(w.String())}
				}
			}
			for _, is := range slices.Sorted(maps.Values(o.Rename)) {
				for _, w := range cfg.UnknownGraph("--rename", is) {
					return nil, usageError{errors.New(w.String())}
				}
			}
			o.Graph = onlyGraph(o.Graph, cfg)
			fmt.Fprintln(cmd.ErrOrStderr(), "reading from", o.Place()) // it may take its time to answer
			return o.Run(ctx, cfg, newLog(cfg, cmd.ErrOrStderr()))
		})
	}
	return cmd
}

// parseRenames reads OLD=NEW.
func parseRenames(given []string) (transfer.GraphNames, error) {
	out := transfer.GraphNames{}
	for _, one := range given {
		was, is, ok := strings.Cut(one, "=")
		if other, twice := out[was]; !ok || twice && other != is {
			return nil, fmt.Errorf("takes --rename OLD=NEW, once for each OLD, not %q", one)
		}
		out[was] = is
	}
	if err := out.Check(); err != nil {
		return nil, fmt.Errorf("takes --rename OLD=NEW: %w", err)
	}
	return out, nil
}

// onlyGraph is the graph of threads that do not name one: the given one, or that of a configuration with a single graph.
func onlyGraph(given string, cfg *config.Config) string {
	if given == "" && len(cfg.Graphs) == 1 {
		return cfg.Graphs[0].ID
	}
	return given
}

func newExport() *cobra.Command {
	var o moving.Export
	cmd := &cobra.Command{
		Use:   "export --to TARGET",
		Short: "Move conversations out",
		Long: `Writes all threads and store items of the data folder, or database, into the tables of LangGraph's own
checkpointers and stores, where PostgresSaver or SqliteSaver continues with them.

TARGET is one of
  postgres://user:password@host/database   tables are made when they are missing
  checkpoints.sqlite                       a file, made when it is missing

What was written is read back and compared; what differs is named, and the exit status is 1. It can
be ended at any time and run again: it continues where it ended, and writes nothing twice.`,
		Example: `  understudy export --to postgres://me:secret@localhost/agents
  understudy export --to checkpoints.sqlite --data /var/lib/understudy
  understudy export --to checkpoints.sqlite --database-url postgres://me:secret@localhost/understudy`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&o.To, "to", "", "where to move to (`TARGET`); required")
	load := dataFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.To == "" {
			return misused(cmd, "needs --to")
		}
		if o.To == "-" {
			return misused(cmd, "writes a database, which standard output cannot be: name a file, such as --to checkpoints.sqlite")
		}
		return move(cmd, load, func(ctx context.Context, cfg *config.Config, p *begun) (*transfer.Result, error) {
			o.Progress = p
			fmt.Fprintln(cmd.ErrOrStderr(), "writing to", o.Place()) // it may take its time to answer
			return o.Run(ctx, cfg)
		})
	}
	return cmd
}

// dataFlags adds the flags that say which data folder or database is meant, and returns what reads them.
func dataFlags(cmd *cobra.Command) (load func() (*config.Config, []config.Warning, error)) {
	file := os.Getenv("UNDERSTUDY_CONFIG")
	if file == "" {
		file = "langgraph.json"
	}
	cmd.Flags().StringVarP(&file, "config", "c", file, "`FILE` whose settings hold for the data, if it is there [$UNDERSTUDY_CONFIG]")
	places := []string{"data", "database-url"}
	for _, s := range config.Settings() {
		if slices.Contains(places, s.Flag) {
			addFlag(cmd, s, config.Dev)
		}
	}
	return func() (*config.Config, []config.Warning, error) {
		given := map[string]string{}
		for _, name := range places {
			if f := cmd.Flags().Lookup(name); f.Changed {
				given[name] = f.Value.String()
			}
		}
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && !cmd.Flags().Changed("config") {
			file = ""
		}
		cfg, warnings, err := config.Load(config.Source{Mode: config.Dev, File: file, Flags: given, DataOnly: true})
		if _, folder := given["data"]; err == nil && folder && given["database-url"] == "" {
			cfg.Storage.DatabaseURL = "" // who names a folder means it, whatever the variables say
		}
		return cfg, warnings, err
	}
}

// move runs an import or export and says what came of it.
func move(cmd *cobra.Command, load func() (*config.Config, []config.Warning, error),
	run func(context.Context, *config.Config, *begun) (*transfer.Result, error),
) error {
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg, _, err := load()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(cmd.Context(), newLog(cfg, errs))
	defer stop()
	waiting := waitSign(errs, "waiting for an answer")
	progress := &begun{newProgress(errs), errs, waiting}
	defer progress.End()
	r, err := run(ctx, cfg, progress)
	waiting()
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("stopped; run it again to continue where it ended")
		}
		return err
	}
	report(out, r)
	if n := len(r.Problems); n > 0 {
		return fmt.Errorf("%d were not moved as they are: %s", n, named(r.Problems))
	}
	return nil
}

// begun takes the sign of waiting away when there is progress to show, or it is known what is waited for.
type begun struct {
	transfer.Progress
	errs    io.Writer
	waiting func()
}

// wait shows what is waited for, until end is called.
func (b *begun) wait(what string) (end func()) {
	b.waiting()
	return waitSign(b.errs, what)
}

func (b *begun) Begin(what string, total int) {
	b.waiting()
	b.Progress.Begin(what, total)
}

// place is where the data of a configuration are, without passwords.
func place(cfg *config.Config) string {
	if cfg.Storage.DatabaseURL != "" {
		return "database " + cfg.DatabasePlace()
	}
	return cfg.Storage.Data
}

func named(problems []transfer.Problem) string {
	names := make([]string, len(problems))
	for i, p := range problems {
		names[i] = p.What
	}
	return strings.Join(names, ", ")
}

// report prints what was moved.
func report(w io.Writer, r *transfer.Result) {
	nothing := true
	for _, c := range []struct {
		what string
		n    transfer.Count
	}{
		{"assistants", r.Assistants}, {"threads", r.Threads}, {"checkpoints", r.Checkpoints}, {"writes", r.Writes}, {"store items", r.Items}, {"accounts", r.Users}, {"runs", r.Runs}, {"feedback", r.Feedback}, {"memories", r.Memories},
	} {
		if c.n.New+c.n.Known > 0 {
			fmt.Fprintf(w, "%-12s %d moved, %d were there\n", c.what, c.n.New, c.n.Known)
		}
		nothing = nothing && c.n.New == 0
	}
	if nothing {
		fmt.Fprintln(w, "nothing to do: everything was there")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "differs:", p)
	}
	if r.Unread > 0 {
		fmt.Fprintf(w, "%d threads have nothing new there and were not read again\n", r.Unread)
	}
	switch {
	case len(r.Problems) > 0, r.Digest == "" && r.Unread > 0:
	case r.Digest == "":
		fmt.Fprintln(w, "nothing was read that could be compared")
	case r.Unread > 0: // a digest of some threads would differ from that of all
		fmt.Fprintln(w, "verified: everything that was read is there and equal")
	default:
		fmt.Fprintf(w, "verified: everything that was read is there and equal (digest %s)\n", r.Digest)
	}
}

// newProgress is a bar on a terminal, and plain lines elsewhere.
func newProgress(w io.Writer) transfer.Progress {
	if isTerminal(w) {
		return &bar{w: w}
	}
	return &lines{w: w}
}

type bar struct {
	w   io.Writer
	bar *progressbar.ProgressBar
}

func (b *bar) Begin(what string, total int) {
	b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(b.w), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionShowIts(), progressbar.OptionClearOnFinish())
}

// A terminal that cannot be written to does not stop the work.
func (b *bar) Step(string) { _ = b.bar.Add(1) }

func (b *bar) End() {
	if b.bar != nil { // something has begun
		_ = b.bar.Finish()
	}
}

// lines says how far it is every few seconds, also while nothing is done.
type lines struct {
	w    io.Writer
	stop func() // nil: nothing has begun

	mu          sync.Mutex // guards all below
	what        string
	done, total int
	said        int // what was done when a line was written last
}

const sayEvery = 2 * time.Second

func (l *lines) Begin(what string, total int) {
	l.End()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.what, l.total, l.done, l.said = what, total, 0, 0
	if total > 0 {
		fmt.Fprintf(l.w, "%s: %d\n", what, total)
	}
	idle := 0
	l.stop = loop.Repeat(sayEvery, sayEvery, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if idle++; l.done != l.said {
			l.said, idle = l.done, 0
		} else if idle%5 != 1 { // a line for ten seconds is enough
			return
		}
		if l.total > 0 {
			fmt.Fprintf(l.w, "%s: %d of %d\n", l.what, l.done, l.total)
		} else {
			fmt.Fprintf(l.w, "%s: %d\n", l.what, l.done)
		}
	})
}

func (l *lines) Step(string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
}

func (l *lines) End() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}
