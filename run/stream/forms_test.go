package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/eventstore/overlay"
)

// A record that readers see as it is costs nothing to keep, however large it is; another form is kept whole.
func TestUnchangedRecordsAreNotHeld(t *testing.T) {
	t.Parallel()
	f := newForms(nil, nil, nil)
	look := overlay.Look{On: true}
	for n := range 100 {
		rec := &bridge.Record{Offset: bridge.Offset{MS: int64(n)}, Run: "r", Event: "values", Data: make([]byte, 1<<20), Ahead: true}
		f.keep(formKey("t", rec, look), rec, rec)
		again := *rec // as read from the database
		got, err := f.shown(t.Context(), "t", &again, look)
		require.NoError(t, err)
		require.Same(t, &again, got)
	}
	require.Less(t, f.kept.Weight(), 100<<10)
	rec := &bridge.Record{Event: "values", Data: make([]byte, 1<<20), Ahead: true}
	other := &bridge.Record{Event: "values", Data: make([]byte, 1<<20), Ahead: true}
	f.keep(formKey("t", rec, look), rec, other)
	got, err := f.shown(t.Context(), "t", rec, look)
	require.NoError(t, err)
	require.Same(t, other, got)
	require.Greater(t, f.kept.Weight(), 1<<20)
}
