package service_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/thread"
)

// says is a message event as a graph's messages leave it in the log.
func says(kind, content string) *eventstore.Event {
	return &eventstore.Event{Type: kind, Category: eventstore.CategoryMessage, Content: []byte(content)}
}

// stops is an answer that names a limit.
func stops(reason string) *eventstore.Event {
	return says(eventstore.TypeAI, `{"content":"ho","additional_kwargs":{"run_stop_reason":"`+reason+`"}}`)
}

// talks appends events of its run to the log, and fails with failure.
func talks(w **world, failure error, events ...*eventstore.Event) script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		err := (*w).rows.Threads().Write(ctx, func(tx thread.Tx) error {
			for _, e := range events {
				c := *e
				c.Run, c.CreatedAt = inv.Run, time.Now()
				if err := tx.AppendEvents(inv.Thread, []*eventstore.Event{&c}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return failure
	}}
}

// life gives the events of a run, as type and content.
func (w *world) life(t id.Thread, r id.Run) (life []string) {
	w.t.Helper()
	page, err := w.rows.LogPage(w.t.Context(), eventstore.PageQuery{Thread: t, Run: r, Limit: 1000})
	require.NoError(w.t, err)
	for _, e := range page.Rows {
		life = append(life, e.Type+" "+e.Category)
	}
	return life
}

// retries are the contents and metadata of the events that say why a run was tried again.
func (w *world) retries(t id.Thread, r id.Run) (all []string) {
	w.t.Helper()
	page, err := w.rows.LogPage(w.t.Context(), eventstore.PageQuery{Thread: t, Run: r, Types: []string{eventstore.TypeRunRetry}, Limit: 1000})
	require.NoError(w.t, err)
	for _, e := range page.Rows {
		all = append(all, string(e.Content)+" "+string(e.Metadata))
	}
	return all
}

func (w *world) completion(t id.Thread, r id.Run) *run.Completion {
	w.t.Helper()
	row, err := w.runs.Get(w.t.Context(), t, r)
	require.NoError(w.t, err)
	all, err := w.runs.Completions(w.t.Context(), row)
	require.NoError(w.t, err)
	return all[r]
}

func to[T any](v T) *T { return &v }

func TestCompletion(t *testing.T) {
	t.Parallel()
	tool := says(eventstore.TypeTool, `{"type":"tool","content":"42"}`)
	revised := says(eventstore.TypeAI, `{"content":[{"type":"text","text":"later"}],"usage_metadata":{"input_tokens":3,"output_tokens":4,"total_tokens":7},"response_metadata":{"model_name":"m1"}}`)
	revised.First = 3
	elsewhere := says(eventstore.TypeAI, `{"content":"of an earlier run","usage_metadata":{"input_tokens":100,"output_tokens":100,"total_tokens":200}}`)
	elsewhere.First = 1 // run.start has this seq: no message of this run
	helper := says("ai_message", `{"content":"","usage_metadata":{"input_tokens":10,"output_tokens":20},"response_metadata":{"model":"m2"}}`)
	helper.Metadata = json.RawMessage(`{"caller":"subagent:search"}`)
	middle := says(eventstore.TypeAI, `{"content":"","additional_kwargs":{"lc_source":"guard"},"response_metadata":{"model_name":"m2","token_usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}`)
	usage := func(in, out, total, calls int64) run.Usage {
		return run.Usage{Input: &in, Output: &out, Total: &total, Calls: calls}
	}
	for _, tt := range []struct {
		name    string
		events  []*eventstore.Event
		failure error
		want    run.Completion
	}{
		{"nothing is known", nil, nil, run.Completion{}},
		{
			"usage is not told",
			[]*eventstore.Event{says(eventstore.TypeHuman, `{"content":"hi"}`), says(eventstore.TypeAI, `{"content":"ho"}`)},
			nil,
			run.Completion{ByCaller: map[string]run.Usage{"lead": {Calls: 1}}, LLMCalls: to[int64](1), Messages: to[int64](2), FirstHuman: to("hi"), LastAI: to("ho")},
		},
		{
			"everything",
			[]*eventstore.Event{
				says(eventstore.TypeHuman, `{"content":"first"}`),
				says(eventstore.TypeAI, `{"content":"said","usage_metadata":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`),
				tool, revised, elsewhere, helper, middle, says(eventstore.TypeHuman, `{"content":"second"}`),
			},
			nil,
			run.Completion{
				InputTokens: to[int64](14), OutputTokens: to[int64](25), TotalTokens: to[int64](39),
				ByModel:  map[string]run.Usage{"m1": usage(3, 4, 7, 1), "m2": usage(11, 21, 32, 2)},
				ByCaller: map[string]run.Usage{"lead": usage(3, 4, 7, 1), "subagent": usage(10, 20, 30, 1), "middleware": usage(1, 1, 2, 1)},
				LLMCalls: to[int64](3), Messages: to[int64](6), FirstHuman: to("first"), LastAI: to("later"),
			},
		},
		{
			"a failure",
			[]*eventstore.Event{says("human_message", `{"content":"`+strings.Repeat("ü", 3000)+`"}`)},
			&graph.Failure{Type: "ValueError", Message: "boom"},
			run.Completion{Messages: to[int64](1), FirstHuman: to(strings.Repeat("ü", 2000)), Error: to("boom")},
		},
		{
			"limits: the newest counts, but the length of an answer least; others are not known",
			[]*eventstore.Event{stops("subagent_limit_capped"), stops("loop_capped"), stops("model_length_capped"), stops("stop_sequence")},
			nil,
			run.Completion{ByCaller: map[string]run.Usage{"lead": {Calls: 4}}, LLMCalls: to[int64](4), Messages: to[int64](4), LastAI: to("ho"), StopReason: to(graph.LoopCapped)},
		},
		{
			"the length of an answer",
			[]*eventstore.Event{stops("model_length_capped")},
			nil,
			run.Completion{ByCaller: map[string]run.Usage{"lead": {Calls: 1}}, LLMCalls: to[int64](1), Messages: to[int64](1), LastAI: to("ho"), StopReason: to(graph.ModelLengthCapped)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var w *world
			w = newWorld(t, map[string]script{"talks": talks(&w, tt.failure, tt.events...)}, nil)
			th := w.thread()
			r, err := w.runs.Create(t.Context(), th, request("talks"))
			require.NoError(t, err)
			w.wait(th, r.ID)
			require.Equal(t, &tt.want, w.completion(th, r.ID))
			page, err := w.rows.LogPage(t.Context(), eventstore.PageQuery{Thread: th, Run: r.ID, Limit: 1000})
			require.NoError(t, err)
			first, last := page.Rows[0], page.Rows[len(page.Rows)-1]
			require.Len(t, page.Rows, len(tt.events)+2)
			require.Equal(t, eventstore.TypeRunStart, first.Type)
			require.JSONEq(t, `{"chain":"talks"}`, string(first.Content))
			require.Contains(t, string(first.Metadata), `"caller":"lead_agent"`)
			data, err := json.Marshal(tt.want)
			require.NoError(t, err)
			if tt.failure == nil {
				require.Equal(t, eventstore.TypeRunEnd+" "+eventstore.CategoryOutputs, last.Type+" "+last.Category)
				require.JSONEq(t, string(data), string(last.Content))
				require.JSONEq(t, `{"status":"success"}`, string(last.Metadata))
			} else {
				require.Equal(t, eventstore.TypeRunError+" "+eventstore.CategoryError, last.Type+" "+last.Category)
				require.Equal(t, `"boom"`, string(last.Content))
				require.JSONEq(t, `{"status":"error","error_type":"ValueError","completion":`+string(data)+`}`, string(last.Metadata))
			}
		})
	}
}

func TestTitleOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"titled": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		return inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
			Key:  checkpointer.Key{Thread: inv.Thread, ID: "1f000000-0000-6000-8000-000000000001"},
			Data: json.RawMessage(`{"channel_values":{"title":"Of ships"},"channel_versions":{"title":"1"}}`), Metadata: json.RawMessage(`{}`), Run: inv.Run,
		}}})
	}}}, nil)
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("titled"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	require.Equal(t, &run.Completion{Title: to("Of ships")}, w.completion(th, r.ID))
}

func TestLifeOfRunsInTheLog(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"echo": echo, "hang": hang(started)}, nil)
	th := w.thread()

	r, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	require.Nil(t, w.completion(th, r.ID), "it goes on")
	queued, err := w.runs.Create(t.Context(), th, request("echo"))
	require.NoError(t, err)
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{queued.ID}, run.CancelInterrupt, true))
	require.Nil(t, w.completion(th, queued.ID), "it never began")
	require.Empty(t, w.life(th, queued.ID))
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
	require.Equal(t, []string{"run.start trace", "run.end outputs"}, w.life(th, r.ID))
	require.Equal(t, &run.Completion{}, w.completion(th, r.ID))

	undone, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{undone.ID}, run.CancelRollback, true))
	require.Equal(t, []string{"run.start trace", "run.rollback trace"}, w.life(th, undone.ID))

	require.NoError(t, w.runs.Delete(t.Context(), th, r.ID))
	require.Equal(t, []string{"run.start trace", "run.end outputs", "run.rollback trace"}, w.life(th, r.ID))
	all, err := w.rows.Completions(t.Context(), r.ID)
	require.NoError(t, err)
	require.Empty(t, all, "it went with its run")

	// A run that is taken over begins once.
	again, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	w.options.Grace = 1
	w.stop()
	w.start()
	<-started
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{again.ID}, run.CancelInterrupt, true))
	require.Equal(t, []string{"run.start trace", "run.retry trace", "run.end outputs"}, w.life(th, again.ID))
	require.Equal(t, []string{`"its server stopped, loaded the graphs anew, or cannot load this one" {"reason":"handed_back","attempt":1}`}, w.retries(th, again.ID))
}

// Simultaneous deletions of a run undo it once.
func TestSimultaneousDeletions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	for range 5 {
		th := w.thread()
		r, err := w.runs.Create(t.Context(), th, request("echo"))
		require.NoError(t, err)
		w.wait(th, r.ID)
		results := make(chan error, 8)
		for range cap(results) {
			go func() { results <- w.runs.Delete(context.Background(), th, r.ID) }()
		}
		deleted := 0
		for range cap(results) {
			if err := <-results; err == nil {
				deleted++
			} else {
				require.True(t, fault.Is(err, fault.NotFound), "%v", err)
			}
		}
		require.Equal(t, 1, deleted)
		require.Equal(t, 1, strings.Count(strings.Join(w.life(th, r.ID), " "), "run.rollback"))
	}
}
