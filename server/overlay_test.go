package server

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

// looking notes how those who ask want to see messages.
type looking struct {
	fakeThreads
	o    *overlay.Overlay
	seen *overlay.Look
}

func (l looking) State(ctx context.Context, at checkpointer.Key, sub bool) (*checkpointer.Snapshot, error) {
	*l.seen = l.o.Look(ctx, "g", overlay.State)
	return l.fakeThreads.State(ctx, at, sub)
}

func (l looking) Patch(ctx context.Context, t id.Thread, p thread.Patch) (*thread.View, error) {
	*l.seen = l.o.Look(ctx, "g", overlay.Threads)
	return l.fakeThreads.Patch(ctx, t, p)
}

func TestOverlayIsChosenByRequests(t *testing.T) {
	t.Parallel()
	var seen overlay.Look
	w := setup(t, func(o *Options) {
		o.Threads = looking{o.Threads.(fakeThreads), overlay.New(nil, overlay.Config{Settings: overlay.Defaults()}), &seen}
		o.Configurable.Includes = []string{"x-*"}
	})
	const path = "/threads/" + someThread
	for _, tt := range []struct {
		query, header string
		on            bool
		markers       overlay.Markers
		detail        string // of a refusal
	}{
		{on: true, markers: "attached"},
		{query: "?overlay=false", markers: "attached"},
		{query: "?overlay=true", header: "off", on: true, markers: "attached"},
		{header: "off", markers: "attached"},
		{header: "on", on: true, markers: "attached"},
		{header: "full", on: true, markers: "attached"},
		{query: "?overlay=full", header: "off", on: true, markers: "attached"},
		{query: "?markers=system", on: true, markers: "system"},
		{query: "?markers=attached", on: true, markers: "attached"},
		{query: "?markers=summary_marker", on: true, markers: "summary_marker"},
		{query: "?overlay=true&markers=off", on: true, markers: "off"},
		{query: "?overlay=1", detail: "Invalid overlay '1'. Expected true, false or full"},
		{query: "?overlay=", detail: "Invalid overlay ''. Expected true, false or full"},
		{query: "?markers=nonsense", detail: "Invalid markers 'nonsense'. Expected attached, system, summary_marker or off"},
		{header: "false", detail: "Invalid X-Understudy-Overlay header 'false'. Expected on, off or full"},
	} {
		for method, at := range map[string]string{"GET": path + "/state", "PATCH": path} {
			var headers []string
			if tt.header != "" {
				headers = []string{"X-Understudy-Overlay", tt.header}
			}
			body := ""
			if method == "PATCH" {
				body = `{}`
			}
			res, answer := w.ask(t, method, at+tt.query, body, headers...)
			if tt.detail != "" {
				require.Equal(t, 422, res.StatusCode, "%s %s", method, tt.query)
				require.JSONEq(t, `{"detail":"`+tt.detail+`"}`, answer)
				continue
			}
			require.Equal(t, 200, res.StatusCode, answer)
			require.Equal(t, overlay.Look{On: tt.on, Markers: tt.markers, Key: "messages"}, seen, "%s %s %q", method, tt.query, tt.header)
		}
	}
	w.ask(t, "POST", "/threads/"+someThread+"/runs", `{"assistant_id":"a"}`, "X-Understudy-Overlay", "off", "X-Tenant", "t")
	require.Equal(t, map[string]string{"x-tenant": "t"}, w.last().(run.Request).Headers, "graphs do not see it")
}
