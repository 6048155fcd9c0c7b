package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonplus"
	"understudy/run"
)

const (
	completionColumns = "run_id, input_tokens, output_tokens, total_tokens, by_model, by_caller, llm_calls, messages, first_human, last_ai, title, error"
	selectCompletion  = "SELECT " + completionColumns + " FROM run_completions WHERE run_id = ?"
	// A run has few events beside its messages, so an index of messages alone would not pay.
	messagesOfRun = "SELECT seq, first_seq, type, metadata, content FROM events INDEXED BY events_run JOIN event_bodies USING (body) " +
		"WHERE thread_id = ? AND run_id = ? AND category = 'message' ORDER BY seq"
	newestData = "SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1"
)

// RunMessages is run.Tx.RunMessages. Contents of tools are not read: they may be large, and nobody asks what they say.
func (tx *Tx) RunMessages(t id.Thread, r id.Run, fn func(*eventstore.Event) error) error {
	var content []byte // one buffer for all rows
	err := tx.query(messagesOfRun, func(s *sqlite.Stmt) error {
		e := eventstore.Event{
			Thread: t, Run: r, Seq: eventstore.Seq(s.ColumnInt64(0)), First: eventstore.Seq(s.ColumnInt64(1)), Type: s.ColumnText(2),
			Category: eventstore.CategoryMessage, Metadata: columnBytes(s, 3),
		}
		if eventstore.Canonical(e.Type) != eventstore.TypeTool {
			n := s.ColumnLen(4)
			content = slices.Grow(content[:0], n)[:n]
			s.ColumnBytes(4, content)
			e.Content = content
		}
		return fn(&e)
	}, t, r)
	if err != nil {
		return fmt.Errorf("messages of run %s: %w", r, err)
	}
	return nil
}

// ChannelText is run.Tx.ChannelText.
func (tx *Tx) ChannelText(t id.Thread, channel string) (text string, err error) {
	var version string
	if _, err = tx.one(newestData, func(s *sqlite.Stmt) error {
		data := columnBytes(s, 0)
		if v := gjson.GetBytes(data, "channel_values."+channel); v.Type == gjson.String {
			text = v.String()
		} else {
			version = gjson.GetBytes(data, "channel_versions."+channel).String()
		}
		return nil
	}, t); err != nil || version == "" {
		return text, err
	}
	typ, data, err := tx.ChannelValue(t, channel, version)
	if err != nil || typ == "" {
		return "", err
	}
	// What cannot be read is no text.
	if value, err := jsonplus.AppendJSON(nil, typ, data); err == nil {
		if v := gjson.ParseBytes(value); v.Type == gjson.String {
			text = v.String()
		}
	}
	return text, nil
}

// PutCompletion is run.Tx.PutCompletion.
func (tx *Tx) PutCompletion(r id.Run, c *run.Completion) error {
	args := []any{r, number(c.InputTokens), number(c.OutputTokens), number(c.TotalTokens)}
	for _, by := range []map[string]run.Usage{c.ByModel, c.ByCaller} {
		if by == nil {
			args = append(args, nil)
			continue
		}
		data, err := json.Marshal(by)
		if err != nil {
			return fmt.Errorf("completion of run %s: %w", r, err)
		}
		args = append(args, data)
	}
	args = append(args, number(c.LLMCalls), number(c.Messages))
	for _, text := range []*string{c.FirstHuman, c.LastAI, c.Title, c.Error} {
		if text == nil {
			args = append(args, nil)
		} else {
			args = append(args, *text)
		}
	}
	if err := tx.exec("INSERT OR REPLACE INTO run_completions ("+completionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", args...); err != nil {
		return fmt.Errorf("completion of run %s: %w", r, err)
	}
	return nil
}

func number(v *int64) any {
	if v == nil {
		return nil
	}
	return *v
}

// Completion is run.Store.Completion.
func (s *Store) Completion(ctx context.Context, r id.Run) (c *run.Completion, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		found, err := one(conn, selectCompletion, func(st *sqlite.Stmt) error {
			c, err = scanCompletion(st)
			return err
		}, r)
		if err == nil && !found {
			err = fault.New(fault.NotFound, "completion not found")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("completion of run %s: %w", r, err)
	}
	return c, nil
}

func scanCompletion(st *sqlite.Stmt) (*run.Completion, error) {
	c := &run.Completion{}
	for col, to := range map[int]**int64{1: &c.InputTokens, 2: &c.OutputTokens, 3: &c.TotalTokens, 6: &c.LLMCalls, 7: &c.Messages} {
		if !st.ColumnIsNull(col) {
			n := st.ColumnInt64(col)
			*to = &n
		}
	}
	for col, to := range map[int]*map[string]run.Usage{4: &c.ByModel, 5: &c.ByCaller} {
		if data := columnBytes(st, col); data != nil {
			if err := json.Unmarshal(data, to); err != nil {
				return nil, err
			}
		}
	}
	for col, to := range map[int]**string{8: &c.FirstHuman, 9: &c.LastAI, 10: &c.Title, 11: &c.Error} {
		if !st.ColumnIsNull(col) {
			text := st.ColumnText(col)
			*to = &text
		}
	}
	return c, nil
}
