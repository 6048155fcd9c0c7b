package relational

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonplus"
	"understudy/run"
)

// completionColumns are the columns of run_completions without the run. Encrypted databases have completionTexts in texts, and NULL in the columns
// of these.
const completionColumns = "input_tokens, output_tokens, total_tokens, by_model, by_caller, llm_calls, messages, first_human, last_ai, title, error, texts, stop_reason"

// colCompletionRun is the column of selectCompletions with the run: the first behind completionColumns.
var colCompletionRun = strings.Count(completionColumns, ",") + 1

// completionTexts are what people and models said, and what a graph did.
type completionTexts struct {
	FirstHuman *string `json:"first_human,omitempty"`
	LastAI     *string `json:"last_ai,omitempty"`
	Title      *string `json:"title,omitempty"`
	Error      *string `json:"error,omitempty"`
}

var (
	SelectCompletion  = same("SELECT " + completionColumns + " FROM run_completions WHERE run_id = $1")
	selectCompletions = differing("SELECT "+completionColumns+", run_id FROM run_completions WHERE run_id = ANY($1)",
		"SELECT "+completionColumns+", run_id FROM run_completions WHERE run_id IN (SELECT value FROM json_each($1))")
	putCompletion = same(upsert("run_completions", "run_id", completionColumns))
	// openTexts and sealTexts move texts of before there was a key.
	openTexts = same("SELECT run_id, first_human, last_ai, title, error FROM run_completions " +
		"WHERE run_id > $1 AND (first_human IS NOT NULL OR last_ai IS NOT NULL OR title IS NOT NULL OR error IS NOT NULL) ORDER BY run_id LIMIT $2")
	sealTexts = same("UPDATE run_completions SET first_human = NULL, last_ai = NULL, title = NULL, error = NULL, texts = $2 WHERE run_id = $1")
	// MessagesOfRun uses the index of all events of a run: it has few besides its messages, so an
	// index of messages alone would not pay.
	MessagesOfRun = differing("SELECT seq, first_seq, type, metadata, content FROM events JOIN event_bodies USING (body) "+
		"WHERE thread_id = $1 AND run_id = $2 AND category = 'message' ORDER BY seq",
		"SELECT seq, first_seq, type, metadata, content FROM events INDEXED BY events_run JOIN event_bodies USING (body) "+
			"WHERE thread_id = $1 AND run_id = $2 AND category = 'message' ORDER BY seq")
	NewestData = same("SELECT checkpoint FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1")
)

// completionArgs returns the values of completionColumns; nil becomes NULL, which means unknown.
func completionArgs(c *run.Completion, encrypts bool) ([]any, error) {
	args := []any{c.InputTokens, c.OutputTokens, c.TotalTokens}
	for _, by := range []map[string]run.Usage{c.ByModel, c.ByCaller} {
		var data []byte
		if by != nil {
			var err error
			if data, err = json.Marshal(by); err != nil {
				return nil, err
			}
		}
		args = append(args, data)
	}
	args = append(args, c.LLMCalls, c.Messages)
	if !encrypts {
		return append(args, c.FirstHuman, c.LastAI, c.Title, c.Error, nil, c.StopReason), nil
	}
	texts, err := json.Marshal(completionTexts{c.FirstHuman, c.LastAI, c.Title, c.Error})
	return append(args, nil, nil, nil, nil, texts, c.StopReason), err
}

// scanCompletion reads a row of completionColumns.
func scanCompletion(r Row) (*run.Completion, error) {
	c := &run.Completion{
		InputTokens: pointer(r, 0, r.Int), OutputTokens: pointer(r, 1, r.Int), TotalTokens: pointer(r, 2, r.Int),
		LLMCalls: pointer(r, 5, r.Int), Messages: pointer(r, 6, r.Int),
		FirstHuman: pointer(r, 7, r.Text), LastAI: pointer(r, 8, r.Text), Title: pointer(r, 9, r.Text), Error: pointer(r, 10, r.Text),
	}
	for col, to := range map[int]*map[string]run.Usage{3: &c.ByModel, 4: &c.ByCaller} {
		if data := r.Bytes(col); data != nil {
			if err := json.Unmarshal(data, to); err != nil {
				return nil, err
			}
		}
	}
	if reason := pointer(r, 12, r.Text); reason != nil {
		c.StopReason = (*graph.StopReason)(reason)
	}
	if data := r.Bytes(11); data != nil {
		var texts completionTexts
		if err := json.Unmarshal(data, &texts); err != nil {
			return nil, err
		}
		c.FirstHuman, c.LastAI, c.Title, c.Error = texts.FirstHuman, texts.LastAI, texts.Title, texts.Error
	}
	return c, nil
}

// sealBatch is how many completions a transaction encrypts.
const sealBatch = 500

// SealCompletions encrypts the texts of completions that were stored without a key, and returns their number.
func (s runStore) SealCompletions(ctx context.Context) (changed int, err error) {
	last, n := "", sealBatch
	for n == sealBatch {
		next := last // set by fn, which may run again
		err := s.db.Write(ctx, func(tx *Tx) error {
			type completion struct {
				run   string
				texts completionTexts
			}
			open, err := all(tx, openTexts, func(r Row) completion {
				return completion{r.Text(0), completionTexts{pointer(r, 1, r.Text), pointer(r, 2, r.Text), pointer(r, 3, r.Text), pointer(r, 4, r.Text)}}
			}, last, sealBatch)
			if err != nil {
				return err
			}
			for _, c := range open {
				data, err := json.Marshal(c.texts)
				if err == nil {
					err = tx.Exec(sealTexts, c.run, data)
				}
				if err != nil {
					return err
				}
			}
			if n = len(open); n > 0 {
				next = open[n-1].run
			}
			return nil
		})
		if err != nil {
			return changed, fmt.Errorf("encrypt texts of completions: %w", err)
		}
		changed, last = changed+n, next
	}
	return changed, nil
}

// Completions implements run.Store.
func (s runStore) Completions(ctx context.Context, runs ...id.Run) (map[id.Run]*run.Completion, error) {
	out, err := from(ctx, s.db.Read, func(q Querier) (map[id.Run]*run.Completion, error) {
		return loadCompletions(q, runs)
	})
	if err != nil {
		return nil, fmt.Errorf("completions of %d runs: %w", len(runs), err)
	}
	return out, nil
}

// loadCompletions reads the completions of runs; those without one are left out.
func loadCompletions(q Querier, runs []id.Run) (map[id.Run]*run.Completion, error) {
	out := make(map[id.Run]*run.Completion, len(runs))
	err := q.Query(selectCompletions, func(r Row) error {
		c, err := scanCompletion(r)
		out[id.Run(r.Text(colCompletionRun))] = c
		return err
	}, runs)
	return out, err
}

// PutCompletion implements run.Tx.
func (tx *Tx) PutCompletion(r id.Run, c *run.Completion) error {
	tx.LockRun(r)
	args, err := completionArgs(c, tx.Encrypts())
	if err == nil {
		err = tx.Exec(putCompletion, append([]any{r}, args...)...)
	}
	if err != nil {
		return fmt.Errorf("completion of run %s: %w", r, err)
	}
	return nil
}

// RunMessages implements run.Tx. It does not read the contents of tool messages, which may be
// large and are not needed.
func (tx *Tx) RunMessages(t id.Thread, r id.Run, fn func(*eventstore.Event) error) error {
	tx.Lock(t)
	var content []byte // one buffer for all rows
	err := tx.Query(MessagesOfRun, func(row Row) error {
		e := ScanMessage(t, r, row, content[:0])
		if e.Content != nil {
			content = e.Content
		}
		return fn(&e)
	}, t, r)
	if err != nil {
		return fmt.Errorf("messages of run %s: %w", r, err)
	}
	return nil
}

// ScanMessage reads a row of MessagesOfRun. The content is appended to buf.
func ScanMessage(t id.Thread, r id.Run, row Row, buf []byte) eventstore.Event {
	e := eventstore.Event{
		Thread: t, Run: r, Seq: eventstore.Seq(row.Int(0)), First: eventstore.Seq(row.Int(1)), Type: row.Text(2),
		Category: eventstore.CategoryMessage, Metadata: row.Bytes(3),
	}
	if eventstore.Canonical(e.Type) != eventstore.TypeTool {
		e.Content = row.Append(buf, 4)
	}
	return e
}

// ChannelText implements run.Tx.
func (tx *Tx) ChannelText(t id.Thread, channel string) (text string, err error) {
	tx.Lock(t)
	data, _, err := first(tx, NewestData, bytesOf, t)
	if err != nil {
		return "", err
	}
	return tx.TextIn(data, t, channel)
}

// TextIn returns the text of a channel in the data of a root checkpoint; "" if there is none.
func (tx *Tx) TextIn(data []byte, t id.Thread, channel string) (string, error) {
	if v := gjson.GetBytes(data, "channel_values."+channel); v.Type == gjson.String {
		return v.String(), nil
	}
	version := gjson.GetBytes(data, "channel_versions."+channel).String()
	if version == "" {
		return "", nil
	}
	typ, value, err := tx.ChannelValue(t, channel, version)
	if err != nil || typ == "" {
		return "", err
	}
	// A value that cannot be read is no text.
	if value, err := jsonplus.AppendJSON(nil, typ, value); err == nil {
		if v := gjson.ParseBytes(value); v.Type == gjson.String {
			return v.String(), nil
		}
	}
	return "", nil
}
