package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/thread/changes"
)

// Servers of one database hear of each other's changes, however many; not of their own, and not of those in another schema.
func TestChangesBetweenServers(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	heard := map[string]chan []changes.Change{}
	stores := map[string]*Store{}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, name := range []string{"one", "two", "elsewhere"} {
		heard[name] = make(chan []changes.Change, 100)
		opts := Options{URL: url, Heard: func(list []changes.Change) { heard[name] <- list }}
		if name == "elsewhere" {
			opts.Schema = "elsewhere"
		}
		s := open(t, opts)
		stores[name] = s
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.Listen(ctx, func(run.Signal) {})
		}()
		t.Cleanup(func() { cancel(); <-ended })
		require.Nil(t, <-heard[name], "at the beginning anything may have changed")
	}
	var many []changes.Change
	for n := range 250 { // some as long as IDs of DeerFlow may be
		many = append(many, changes.Change{Thread: id.Thread(fmt.Sprintf("%0*d", 36+n%29, n)), Run: id.NewRun()})
	}
	many[7].Run = ""
	for _, list := range [][]changes.Change{nil, many, {{Thread: "t"}}} {
		require.NoError(t, stores["one"].SendChanges(t.Context(), list))
		var got []changes.Change
		for len(got) < len(list) {
			got = append(got, <-heard["two"]...)
		}
		if list == nil {
			require.Nil(t, <-heard["two"])
		}
		require.Equal(t, list, got)
	}
	// What follows comes after all that could have come before.
	require.NoError(t, stores["two"].SendChanges(t.Context(), []changes.Change{{Thread: "last"}}))
	require.Equal(t, []changes.Change{{Thread: "last"}}, <-heard["one"])
	require.Empty(t, heard["elsewhere"])
}
