package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	on := Overlay{State: true, History: true, Threads: true, Wait: true, Stream: true, Updates: true, Markers: "attached", Key: "messages", Partial: true, MaxBytes: 16 * MiB}
	with := func(change func(*Overlay)) Overlay {
		o := on
		change(&o)
		return o
	}
	for _, tt := range []struct {
		name, history string
		want          History
		mistake, warn string
	}{
		{name: "absent", history: `null`, want: History{Search: true, Overlay: on}},
		{name: "empty", history: `{}`, want: History{Search: true, Overlay: on}},
		{
			name: "some", history: `{"overlay": {"wait": false, "stream": false, "updates": false}, "markers": "off", "key": "chat"}`,
			want: History{Search: true, Overlay: with(func(o *Overlay) { o.Wait, o.Stream, o.Updates, o.Markers, o.Key = false, false, false, "off", "chat" })},
		},
		{
			name: "of graphs, on top of the section", history: `{"graphs": {"a": {"overlay": {"state": false}}}, "markers": "summary_marker"}`,
			want: History{
				Search:  true,
				Overlay: with(func(o *Overlay) { o.Markers = "summary_marker" }),
				Graphs:  map[string]Overlay{"a": with(func(o *Overlay) { o.Markers, o.State = "summary_marker", false })},
			},
		},
		{
			name: "bounds", history: `{"overlay": {"threads": "full", "max_bytes": "1MiB"}, "graphs": {"a": {"overlay": {"threads": true, "max_bytes": 0}}}}`,
			want: History{
				Search:  true,
				Overlay: with(func(o *Overlay) { o.FullThreads, o.MaxBytes = true, MiB }),
				Graphs:  map[string]Overlay{"a": with(func(o *Overlay) { o.MaxBytes = 0 })},
			},
		},
		{name: "no size", history: `{"overlay": {"max_bytes": "much"}}`, mistake: `history.overlay.max_bytes: write a number of bytes, or a size with its unit such as "16MiB", of at most 1GiB`},
		{name: "too large a size", history: `{"overlay": {"max_bytes": "2GiB"}}`, mistake: "of at most 1GiB"},
		{name: "no such form", history: `{"overlay": {"threads": "all"}}`, mistake: `history.overlay.threads: is text; write true, false or "full"`},
		{name: "strange graph", history: `{"graphs": {"b": {}}}`, want: History{Search: true, Overlay: on, Graphs: map[string]Overlay{"b": on}}, warn: "history.graphs.b: there is no such graph"},
		{name: "unknown key", history: `{"overlay": {"sate": true}}`, want: History{Search: true, Overlay: on}, warn: `history.overlay.sate: unknown key, ignored; did you mean "state"?`},
		{name: "no object", history: `true`, mistake: "history: is true or false; write an object"},
		{name: "no switch", history: `{"overlay": {"state": "on"}}`, mistake: "history.overlay.state: is text; write true or false"},
		{name: "markers", history: `{"markers": "none"}`, mistake: "history.markers: write one of attached, off, summary_marker, system"},
		{name: "key", history: `{"key": ""}`, mistake: "history.key: is empty"},
		{name: "key of a graph", history: `{"graphs": {"a": {"key": 1}}}`, mistake: "history.graphs.a.key: is a number"},
		{name: "graphs", history: `{"graphs": []}`, mistake: "history.graphs: is a list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := Load(setup(t, `{"graphs": {"a": "./agent.py:g"}, "history": `+tt.history+`}`, nil))
			if tt.mistake != "" {
				require.ErrorContains(t, err, tt.mistake)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tt.want, got.History))
			var said []string
			for _, w := range warnings {
				said = append(said, w.String())
			}
			if tt.warn == "" {
				require.Empty(t, said)
			} else {
				require.Equal(t, []string{tt.warn}, said)
			}
		})
	}
}
