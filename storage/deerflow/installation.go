package deerflow

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/deerflow"
	"understudy/deerflow/account"
	"understudy/deerflow/files"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/thread"
	"understudy/transfer"
)

// Installation is a DeerFlow installation as a source of conversations, with its accounts and feedback besides.
type Installation struct {
	transfer.Source // its checkpoints
	tables          tables
	rows            map[string]*thread.Thread // of threads_meta
	owner           string                    // of what has none: the first administrator
	hidden          map[string]bool           // runs that a later one answered again, and edits of questions that failed
	runs            map[string][]begun        // of threads, oldest first
	broken          map[string]int            // rows of threads that cannot be read
	notes           []string
}

var _ transfer.RowSource = (*Installation)(nil)

// Find returns the database of an installation in its folder: the project's, the backend's, or DEER_FLOW_HOME. "": there is none.
func Find(folder string) string {
	for _, name := range []string{"deerflow.db", "data/deerflow.db", ".deer-flow/data/deerflow.db", "backend/.deer-flow/data/deerflow.db"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(folder, name)
		}
	}
	return ""
}

// OpenSQLite adds to the checkpoints of a file what DeerFlow knows of them; nil when the file is not DeerFlow's. Close closes both.
func OpenSQLite(ctx context.Context, path string, checkpoints transfer.Source) (*Installation, error) {
	t, err := openSQLite(path)
	if err != nil {
		return nil, err
	}
	return open(ctx, t, checkpoints)
}

// OpenPostgres is OpenSQLite for a database server.
func OpenPostgres(ctx context.Context, address string, checkpoints transfer.Source) (*Installation, error) {
	t, err := openPostgres(ctx, address)
	if err != nil {
		return nil, err
	}
	return open(ctx, t, checkpoints)
}

func open(ctx context.Context, t tables, checkpoints transfer.Source) (*Installation, error) {
	i := &Installation{Source: checkpoints, tables: t, rows: map[string]*thread.Thread{}, hidden: map[string]bool{}, runs: map[string][]begun{}, broken: map[string]int{}, owner: "default"}
	for _, table := range []string{"threads_meta", "runs"} {
		if found, err := t.has(ctx, table); err != nil || !found {
			_ = t.close() // the database is another one, or what is wrong with it was said
			return nil, err
		}
	}
	if err := i.look(ctx); err != nil {
		_ = t.close()
		return nil, fmt.Errorf("read DeerFlow's tables: %w", err)
	}
	return i, nil
}

// look reads what is small: threads, without their conversations, and which runs were answered again.
func (i *Installation) look(ctx context.Context) error {
	for u, err := range i.Users(ctx) {
		if err != nil {
			return err
		}
		if u.Role == account.Admin {
			i.owner = u.ID
			break
		}
	}
	orphans := 0
	query := "SELECT " + text("thread_id", "user_id", "metadata_json", "created_at", "updated_at") + " FROM threads_meta"
	err := i.tables.each(ctx, query, nil, func(r []string) error {
		metadata := jsonobj.Of(object(r[2]))
		for _, key := range []string{"owner_id", "graph_id", "assistant_id"} {
			metadata.Delete(key)
		}
		owner := r[1]
		if owner == "" {
			owner, orphans = i.owner, orphans+1
		}
		metadata.SetText("user_id", owner)
		metadata.SetText("graph_id", graphName)
		metadata.SetText("assistant_id", string(id.DefaultAssistant(graphName)))
		i.rows[r[0]] = &thread.Thread{Metadata: metadata.JSON(), Status: thread.Busy, CreatedAt: when(r[3]), UpdatedAt: when(r[4])} // the status is that of its state
		return nil
	})
	if err != nil {
		return err
	}
	if orphans > 0 {
		i.notes = append(i.notes, fmt.Sprintf("%d threads had no owner and belong to %s, the first administrator, now", orphans, i.owner))
	}
	return i.tables.each(ctx, "SELECT "+text("run_id", "status", "metadata_json", "thread_id", "created_at")+" FROM runs ORDER BY created_at", nil, func(r []string) error {
		if id.Canonical(r[0]) == r[0] { // others cannot be named here
			i.runs[r[3]] = append(i.runs[r[3]], begun{id.Run(r[0]), when(r[4])})
		}
		of := gjson.Get(r[2], "regenerate_from_run_id").String()
		switch {
		case of == "":
		case r[1] == "success":
			i.hidden[of] = true
		case gjson.Get(r[2], "replay_kind").String() == "edit": // DeerFlow went back to the question that was edited
			i.hidden[r[0]] = true
		}
		return nil
	})
}

// graphName is that of DeerFlow's agent.
const graphName = "lead_agent"

func object(text string) json.RawMessage {
	if !gjson.Valid(text) || !gjson.Parse(text).IsObject() {
		return json.RawMessage("{}")
	}
	return json.RawMessage(text)
}

// Close closes both connections.
func (i *Installation) Close() error {
	err := i.tables.close()
	if other := i.Source.Close(); err == nil {
		err = other
	}
	return err
}

// Notes implements transfer.Source.
func (i *Installation) Notes() []string {
	var broken []string
	rows := 0
	for _, n := range i.broken {
		rows += n
	}
	if rows > 0 {
		broken = append(broken, fmt.Sprintf("%d messages of run_events of %d threads are left out, as they cannot be read", rows, len(i.broken)))
	}
	return slices.Concat(i.Source.Notes(), i.notes, broken, []string{
		"files, skills and agents stay where they are: serve them with DEER_FLOW_HOME",
	})
}

// CountThreads implements transfer.Source.
func (i *Installation) CountThreads(ctx context.Context) (int, error) {
	n := 0
	for _, err := range i.Threads(ctx) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// Threads implements transfer.Source: threads with checkpoints, and those in which nothing was said yet. They keep their ids, for files have them.
func (i *Installation) Threads(ctx context.Context) iter.Seq2[*transfer.Thread, error] {
	return func(yield func(*transfer.Thread, error) bool) {
		seen := map[string]bool{}
		for t, err := range i.Source.Threads(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			seen[t.Key] = true
			if t.Row = i.rows[t.Key]; t.Row == nil { // of a time without accounts
				metadata := &jsonobj.Object{}
				metadata.SetText("user_id", i.owner)
				metadata.SetText("graph_id", graphName)
				metadata.SetText("assistant_id", string(id.DefaultAssistant(graphName)))
				t.Row = &thread.Thread{Metadata: metadata.JSON(), Status: thread.Busy}
			}
			t.SameID = sameID(t.Key)
			if !yield(t, nil) {
				return
			}
		}
		var rest []string
		for key := range i.rows {
			if !seen[key] {
				rest = append(rest, key)
			}
		}
		slices.Sort(rest)
		for _, key := range rest {
			if !yield(&transfer.Thread{Key: key, Row: i.rows[key], SameID: sameID(key)}, nil) {
				return
			}
		}
	}
}

// sameID reports whether a thread keeps its key as its id: the API takes keys that are names of folders.
func sameID(key string) bool { return files.IsThread(key) }

// here returns the id that a thread gets here.
func here(key string) id.Thread {
	to, _ := (&transfer.Thread{Key: key, SameID: sameID(key)}).ID()
	return to
}

// begun is when a run was created.
type begun struct {
	run id.Run
	at  time.Time
}

// DerivesRuns implements transfer.RunDeriver.
func (i *Installation) DerivesRuns() {}

// History implements transfer.Source. Checkpoints of DeerFlow do not name the run that wrote them. Runs of a thread follow each other, so it is the one that was created
// last before; messages have it, and by it what people thought of the answer.
func (i *Installation) History(ctx context.Context, t *transfer.Thread) (transfer.History, error) {
	h, err := i.Source.History(ctx, t)
	if err != nil {
		return nil, err
	}
	return history{h, i.runs[t.Key]}, nil
}

type history struct {
	transfer.History
	runs []begun
}

// Read implements transfer.History.
func (h history) Read(ctx context.Context, links []transfer.Link, fn func(*transfer.Step) error) error {
	return h.History.Read(ctx, links, func(s *transfer.Step) error {
		if source := gjson.GetBytes(s.Metadata, "source").String(); source == "loop" || source == "input" {
			if r := h.runAt(s.ID); r != "" && !gjson.GetBytes(s.Metadata, "run_id").Exists() {
				metadata := jsonobj.Of(s.Metadata)
				metadata.SetText("run_id", string(r)) // as the agent writes it here: a turn is found by it when it is to run again
				s.Metadata = metadata.JSON()
			}
		}
		return fn(s)
	})
}

// runAt returns the run that was the last when a checkpoint was made; "": none, or its time is not known.
func (h history) runAt(c id.Checkpoint) id.Run {
	at, ok := c.Time()
	if !ok {
		return ""
	}
	n, _ := slices.BinarySearchFunc(h.runs, at, func(b begun, at time.Time) int { return cmp.Or(b.at.Compare(at), -1) }) // the first that was created later
	if n == 0 {
		return ""
	}
	return h.runs[n-1].run
}

// Transcript implements transfer.TranscriptSource: the messages that people saw, from the events of runs, for the state has only those that were not
// summarized. Those of middleware and of subagents are not among them, nor those of answers that were given again.
func (i *Installation) Transcript(ctx context.Context, t *transfer.Thread) ([]json.RawMessage, error) {
	if found, err := i.tables.has(ctx, "run_events"); err != nil || !found {
		return nil, err
	}
	var out []json.RawMessage
	at, broken := map[string]int{}, 0
	query := "SELECT " + text("run_id", "content", "event_metadata") + " FROM run_events WHERE thread_id = $1 AND category = 'message' ORDER BY seq"
	err := i.tables.each(ctx, query, []any{t.Key}, func(r []string) error {
		caller := gjson.Get(r[2], "caller").String()
		m := gjson.Parse(r[1])
		switch {
		case strings.HasPrefix(caller, "middleware:"), strings.HasPrefix(caller, "subagent:"), i.hidden[r[0]]:
			return nil
		case !gjson.Valid(r[1]) || !m.IsObject() || m.Get("type").Type != gjson.String:
			broken++
			return nil
		}
		key := m.Get("id").String()
		if n, again := at[key]; again && key != "" {
			out[n] = json.RawMessage(r[1])
			return nil
		}
		at[key] = len(out)
		out = append(out, json.RawMessage(r[1]))
		return nil
	})
	if broken > 0 {
		i.broken[t.Key] = broken
	}
	return out, err
}

// HasRows implements transfer.RowSource.
func (*Installation) HasRows() {}

// Users returns the accounts, oldest first. An installation that never had any has no table of them.
func (i *Installation) Users(ctx context.Context) iter.Seq2[*account.User, error] {
	if found, err := i.tables.has(ctx, "users"); err != nil || !found {
		return nothing[account.User](err)
	}
	query := "SELECT " + text("id", "email", "password_hash", "system_role", "needs_setup", "token_version", "oauth_provider", "created_at", "oauth_id") + " FROM users ORDER BY created_at, id"
	return all(ctx, i.tables, query, func(r []string) *account.User {
		u := &account.User{ID: r[0], Email: r[1], Password: r[2], Role: account.Plain, Setup: r[4] == "1" || r[4] == "true", Provider: r[6], CreatedAt: when(r[7]), Subject: r[8]}
		if r[3] == string(account.Admin) {
			u.Role = account.Admin
		}
		_, _ = fmt.Sscan(r[5], &u.Version)
		return u
	})
}

// Feedback returns what users think of runs, oldest first. Ratings are as they are there, 0 for none.
func (i *Installation) Feedback(ctx context.Context) iter.Seq2[*deerflow.Feedback, error] {
	if found, err := i.tables.has(ctx, "feedback"); err != nil || !found {
		return nothing[deerflow.Feedback](err)
	}
	query := "SELECT " + text("feedback_id", "thread_id", "run_id", "user_id", "message_id", "rating", "comment", "created_at") + " FROM feedback ORDER BY created_at, feedback_id"
	return all(ctx, i.tables, query, func(r []string) *deerflow.Feedback {
		rating, _ := strconv.Atoi(r[5]) // 0 for none
		f := &deerflow.Feedback{ID: r[0], Thread: here(r[1]), Run: id.Run(r[2]), User: r[3], Rating: rating, CreatedAt: when(r[7])}
		if f.User == "" {
			f.User = i.owner
		}
		if r[4] != "" {
			f.Message = &r[4]
		}
		if r[6] != "" {
			f.Comment = &r[6]
		}
		return f
	})
}

// nothing is a list without anything, or that cannot be read.
func nothing[T any](err error) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if err != nil {
			yield(nil, err)
		}
	}
}

// all reads all rows before the first is used: callers write while they read.
func all[T any](ctx context.Context, t tables, query string, scan func(row []string) *T) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		var list []*T
		if err := t.each(ctx, query, nil, func(r []string) error { list = append(list, scan(r)); return nil }); err != nil {
			yield(nil, err)
			return
		}
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}
