package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonplus"
	"understudy/run"
)

const (
	completionColumns = "run_id, input_tokens, output_tokens, total_tokens, by_model, by_caller, llm_calls, messages, first_human, last_ai, title, error"
	selectCompletion  = "SELECT " + completionColumns + " FROM run_completions WHERE run_id = $1"
	// A run has few events beside its messages, so an index of messages alone would not pay.
	messagesOfRun = "SELECT seq, first_seq, type, metadata, content FROM events JOIN event_bodies USING (body) " +
		"WHERE thread_id = $1 AND run_id = $2 AND category = 'message' ORDER BY seq"
	newestData = "SELECT checkpoint FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1"
)

// RunMessages is run.Tx.RunMessages. Contents of tools are not read: they may be large, and nobody asks what they say.
func (tx *Tx) RunMessages(t id.Thread, r id.Run, fn func(*eventstore.Event) error) error {
	tx.lock(t)
	var events []*eventstore.Event
	if err := tx.query(messagesOfRun, func(row *row) error {
		e := &eventstore.Event{
			Thread: t, Run: r, Seq: eventstore.Seq(row.int(0)), First: eventstore.Seq(row.int(1)), Type: row.text(2),
			Category: eventstore.CategoryMessage, Metadata: row.bytes(3),
		}
		if eventstore.Canonical(e.Type) != eventstore.TypeTool {
			e.Content = row.bytes(4)
		}
		events = append(events, e)
		return nil
	}, t, r); err != nil {
		return fmt.Errorf("messages of run %s: %w", r, err)
	}
	for _, e := range events {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// ChannelText is run.Tx.ChannelText.
func (tx *Tx) ChannelText(t id.Thread, channel string) (text string, err error) {
	tx.lock(t)
	var version string
	find := func(data []byte) {
		if v := gjson.GetBytes(data, "channel_values."+channel); v.Type == gjson.String {
			text = v.String()
		} else {
			version = gjson.GetBytes(data, "channel_versions."+channel).String()
		}
	}
	if head, known := tx.tips[t]; !known {
		if _, err = one(tx, newestData, func(r *row) error {
			find(r.bytes(0))
			return nil
		}, t); err != nil {
			return "", err
		}
	} else if head != nil {
		find(head.Data)
	}
	if version == "" {
		return text, nil
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

const putCompletion = "INSERT INTO run_completions (" + completionColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) " +
	"ON CONFLICT (run_id) DO UPDATE SET (input_tokens, output_tokens, total_tokens, by_model, by_caller, llm_calls, messages, first_human, last_ai, title, error) = " +
	"(excluded.input_tokens, excluded.output_tokens, excluded.total_tokens, excluded.by_model, excluded.by_caller, excluded.llm_calls, excluded.messages, " +
	"excluded.first_human, excluded.last_ai, excluded.title, excluded.error)"

// PutCompletion is run.Tx.PutCompletion.
func (tx *Tx) PutCompletion(r id.Run, c *run.Completion) error {
	tx.lockRun(r)
	args := []any{r, c.InputTokens, c.OutputTokens, c.TotalTokens}
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
	if err := tx.exec(putCompletion, append(args, c.LLMCalls, c.Messages, c.FirstHuman, c.LastAI, c.Title, c.Error)...); err != nil {
		return fmt.Errorf("completion of run %s: %w", r, err)
	}
	return nil
}

// Completion is run.Store.Completion.
func (s *Store) Completion(ctx context.Context, of id.Run) (c *run.Completion, err error) {
	err = s.read(ctx, func(conn *reader) error {
		found, err := one(conn, selectCompletion, func(r *row) error {
			c, err = scanCompletion(r)
			return err
		}, of)
		if err == nil && !found {
			err = fault.New(fault.NotFound, "completion not found")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("completion of run %s: %w", of, err)
	}
	return c, nil
}

func scanCompletion(r *row) (*run.Completion, error) {
	c := &run.Completion{}
	for col, to := range map[int]**int64{1: &c.InputTokens, 2: &c.OutputTokens, 3: &c.TotalTokens, 6: &c.LLMCalls, 7: &c.Messages} {
		if !r.null(col) {
			n := r.int(col)
			*to = &n
		}
	}
	for col, to := range map[int]*map[string]run.Usage{4: &c.ByModel, 5: &c.ByCaller} {
		if data := r.bytes(col); data != nil {
			if err := json.Unmarshal(data, to); err != nil {
				return nil, err
			}
		}
	}
	for col, to := range map[int]**string{8: &c.FirstHuman, 9: &c.LastAI, 10: &c.Title, 11: &c.Error} {
		if !r.null(col) {
			text := r.text(col)
			*to = &text
		}
	}
	return c, nil
}
