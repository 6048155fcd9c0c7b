package moving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"understudy/deerflow"
	"understudy/deerflow/account"
	"understudy/deerflow/files"
	"understudy/deerflow/memory"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/fault"
	"understudy/run"
	installed "understudy/storage/deerflow"
	"understudy/store"
	"understudy/transfer"
)

// deerFlowGraph is the graph of DeerFlow's threads.
const deerFlowGraph = "lead_agent"

// moveAccounts moves accounts and feedback of an installation, and compares what is here already. It adds to the result.
func moveAccounts(ctx context.Context, from *installed.Installation, rows backend.Database, result *transfer.Result) error {
	users := map[string]bool{}
	for u, err := range from.Users(ctx) {
		if err != nil {
			return fmt.Errorf("accounts of %s: %w", from.Name(), err)
		}
		fresh, err := moveUser(ctx, u, rows)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			result.Problems = append(result.Problems, transfer.Problem{What: "account " + u.Email, Err: err})
			continue
		case fresh:
			result.Users.New++
		default:
			result.Users.Known++
		}
		users[u.ID] = true
	}
	lost, unrated := 0, 0
	for f, err := range from.Feedback(ctx) {
		if err != nil {
			return fmt.Errorf("feedback of %s: %w", from.Name(), err)
		}
		if id.Canonical(string(f.Run)) != string(f.Run) {
			lost++ // of a run that cannot be named here
			continue
		}
		if f.Rating != 1 && f.Rating != -1 {
			unrated++ // neither approval nor rejection may be made of it
			continue
		}
		have, err := rows.FeedbackOf(ctx, f.User, f.Thread, f.Run)
		if err != nil {
			return fmt.Errorf("feedback %s: %w", f.ID, err)
		}
		if len(have) > 0 { // also one that was changed here since
			result.Feedback.Known++
			continue
		}
		switch kept, err := rows.PutFeedback(ctx, *f); {
		case fault.Is(err, fault.NotFound):
			lost++
		case err != nil:
			return fmt.Errorf("feedback %s: %w", f.ID, err)
		case kept.Rating != f.Rating || kept.ID != f.ID:
			result.Problems = append(result.Problems, transfer.Problem{What: "feedback " + f.ID, Err: errors.New("what is read back differs")})
		default:
			result.Feedback.New++
		}
	}
	if lost > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d pieces of feedback are left out: their threads are gone", lost))
	}
	if unrated > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d pieces of feedback are left out: they have no rating of +1 or -1", unrated))
	}
	return nil
}

// moveUser moves an account, unless it is here. It reports whether it was not.
func moveUser(ctx context.Context, u *account.User, rows backend.Database) (fresh bool, err error) {
	have, err := rows.User(ctx, u.ID)
	if err == nil {
		if have.Role != u.Role {
			return false, fmt.Errorf("its role here is %s, there %s", have.Role, u.Role)
		}
		return false, nil // its password and address may have been changed here
	} else if !fault.Is(err, fault.NotFound) {
		return false, err
	}
	switch err := rows.InsertUser(ctx, u, false); {
	case fault.Is(err, fault.Conflict):
		return false, errors.New("another account has this e-mail address here; the threads of this one are moved, but it cannot sign in")
	case err != nil:
		return false, err
	}
	kept, err := rows.User(ctx, u.ID)
	if err == nil && (kept.Email != u.Email || kept.Password != u.Password || kept.Role != u.Role || kept.Version != u.Version) {
		err = errors.New("what is read back differs")
	}
	return true, err
}

// runsAtOnce is how many runs of a thread are moved in one transaction.
const runsAtOnce = 20

// moveRuns moves the runs of an installation, whose threads are here, with what they used. It adds to the result. A transaction has runs of one thread, so that it waits
// for no other one while it holds that: servers may be running.
func moveRuns(ctx context.Context, from *installed.Installation, rows backend.Database, result *transfer.Result) error {
	lost, unnamed := 0, 0
	var batch []*installed.Run
	flush := func() error {
		fresh, gone, err := insertRuns(ctx, batch, rows)
		result.Runs.New += fresh
		lost += gone
		result.Runs.Known += len(batch) - fresh - gone
		batch = batch[:0]
		return err
	}
	for r, err := range from.Runs(ctx) {
		switch {
		case err != nil:
			return fmt.Errorf("runs of %s: %w", from.Name(), err)
		case id.Canonical(string(r.ID)) != string(r.ID):
			unnamed++
			continue
		}
		if n := len(batch); n == runsAtOnce || n > 0 && batch[0].Thread != r.Thread {
			if err := flush(); err != nil {
				return err
			}
		}
		batch = append(batch, r)
	}
	if err := flush(); err != nil {
		return err
	}
	if lost > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d runs are left out: their threads are gone", lost))
	}
	if unnamed > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d runs are left out: their ids are no UUIDs", unnamed))
	}
	return nil
}

// insertRuns inserts those runs of a thread that are not here. It returns how many there were, and how many are lost because the thread is not here.
func insertRuns(ctx context.Context, list []*installed.Run, rows backend.Database) (fresh, gone int, err error) {
	var missing []*installed.Run
	for _, r := range list {
		if _, err := rows.Runs().Run(ctx, r.Thread, r.ID); fault.Is(err, fault.NotFound) {
			missing = append(missing, r)
		} else if err != nil {
			return 0, 0, err
		}
	}
	if len(missing) == 0 {
		return 0, 0, nil
	}
	err = rows.Runs().Write(ctx, func(tx run.Tx) error {
		fresh, gone = 0, 0
		if _, err := tx.Thread(missing[0].Thread); fault.Is(err, fault.NotFound) {
			gone = len(missing)
			return nil
		} else if err != nil {
			return err
		}
		for _, r := range missing {
			if err := tx.InsertRun(&r.Run); err != nil {
				return err
			}
			if err := tx.PutCompletion(r.ID, &r.Completion); err != nil {
				return err
			}
			fresh++
		}
		return nil
	})
	return fresh, gone, err
}

// homeOf returns the home folder of an installation; "": it is not known.
func homeOf(from string, cfg *config.Config) string {
	file := cmp.Or(installed.Find(from), from)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
		dir := filepath.Dir(file)
		if filepath.Base(dir) == "data" {
			dir = filepath.Dir(dir)
		}
		if info, err := os.Stat(filepath.Join(dir, "users")); err == nil && info.IsDir() {
			return dir
		}
	}
	if cfg.Lookup == nil {
		return ""
	}
	home, _ := cfg.Lookup("DEER_FLOW_HOME")
	return home
}

// moveMemories moves what is remembered of users from the files of an installation into the store. It adds to the result.
func moveMemories(ctx context.Context, home string, rows backend.Database, log *slog.Logger, result *transfer.Result) error {
	if home == "" {
		result.Notes = append(result.Notes, "memories are imported when the server, with DEER_FLOW_HOME, needs them first")
		return nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	folder := files.Home{Dir: home}
	subjects, err := deerflow.Remembered(folder)
	if err != nil {
		return fmt.Errorf("memories in %s: %w", home, err)
	}
	moved := &memory.Moved{Items: &memory.Items{Store: store.NewService(rows.Items(), nil), User: files.User}, From: deerflow.Memories(folder), Log: log}
	for _, subject := range subjects {
		fresh, err := moved.Move(ctx, subject)
		if err != nil && ctx.Err() != nil {
			return err
		}
		user, agent := memory.Of(subject)
		if err != nil {
			result.Problems = append(result.Problems, transfer.Problem{What: strings.TrimSpace("memory of " + user + " " + agent), Err: err})
			continue
		}
		if fresh {
			result.Memories.New++
			continue
		}
		known, err := moved.Items.Load(ctx, subject)
		if err != nil {
			return fmt.Errorf("memory of %s: %w", user, err)
		}
		if known != nil { // it may have changed here since
			result.Memories.Known++
		}
	}
	return nil
}

// graphsWith adds DeerFlow's graph to those that are known; nil stays nil: all are.
func graphsWith(known []string) []string {
	if known == nil || slices.Contains(known, deerFlowGraph) {
		return known
	}
	return append(known, deerFlowGraph)
}
