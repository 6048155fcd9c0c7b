package eventstore_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/seedtest"
)

func partial(mid, text string) eventstore.Partial {
	b, err := json.Marshal(map[string]any{"content": text, "type": "ai", "id": mid})
	if err != nil {
		panic(err)
	}
	return eventstore.Partial{ID: mid, Message: b, Step: 3}
}

func keep(t *testing.T, m *memory, c string, answers ...eventstore.Partial) bool {
	t.Helper()
	kept, err := eventstore.RecordPartial(m, "t", id.Checkpoint(c), "r", time.Now(), answers)
	require.NoError(t, err)
	return kept
}

// Partial answers are shown after what their checkpoint shows, in every later one too, and change nothing else: without them all
// transcripts and lists are what they would be.
func TestPartialAnswersChangeNothingElse(t *testing.T) {
	t.Parallel()
	const mark = "partial of "
	for seed := range seedtest.Seeds(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		script := tree(r, 60)
		want, got := newMemory(), newMemory()
		parents := map[string]string{}
		partials := map[string][]string{} // shown at a checkpoint, when it got its own
		for _, c := range script {
			parents[c.id] = c.parent
			play(t, want, []checkpoint{c})
			play(t, got, []checkpoint{c})
			if r.IntN(4) > 0 {
				continue
			}
			if r.IntN(2) == 0 {
				got.cache = eventstore.NewCache()
			}
			for i := range 1 + r.IntN(2) {
				require.True(t, keep(t, got, c.id, partial(fmt.Sprint("p", c.id, "-", i), fmt.Sprint(mark, c.id, "-", i))))
			}
			now := shown(t, got, id.Checkpoint(c.id))
			require.True(t, strings.HasPrefix(now[len(now)-1], mark+c.id), "at the end: %v", now)
			partials[c.id] = now
		}
		consistent(t, got)
		others := func(all []string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, mark) })
		}
		for _, c := range script {
			at := id.Checkpoint(c.id)
			now := shown(t, got, at)
			require.Equal(t, shown(t, want, at), others(now), "seed %d, checkpoint %s", seed, c.id)
			require.Len(t, transcript(t, got, at).List, len(transcript(t, want, at).List))
			if before := partials[c.id]; before != nil {
				require.Equal(t, before, now)
			}
			// What stays of the parent stays in its order.
			if parents[c.id] == "" {
				continue
			}
			both := []string{}
			parent := shown(t, got, id.Checkpoint(parents[c.id]))
			for _, s := range now {
				if strings.HasPrefix(s, mark) && slices.Contains(parent, s) {
					both = append(both, s)
				}
			}
			require.Equal(t, slices.DeleteFunc(parent, func(s string) bool { return !slices.Contains(both, s) }), both)
		}
	}
}

func TestPartialAnswers(t *testing.T) {
	t.Parallel()
	begin := func() *memory {
		m := newMemory()
		play(t, m, []checkpoint{{id: "a", messages: list(m1, m2, m3)}})
		require.True(t, keep(t, m, "a", partial("p", "so fa")))
		return m
	}
	after := func(m *memory, c checkpoint) []string {
		c.id, c.parent = "b", "a"
		play(t, m, []checkpoint{c})
		consistent(t, m)
		return shown(t, m, "b")
	}
	t.Run("the event says so", func(t *testing.T) {
		m := begin()
		e := m.events[len(m.events)-1]
		require.Equal(t, eventstore.TypeAI, e.Type)
		require.Equal(t, "p", e.MessageID)
		require.JSONEq(t, `{"checkpoint_id":"a","step":3,"partial":true}`, string(e.Metadata))
		cut := partial("q", "long")
		cut.Truncated = true
		require.True(t, keep(t, m, "a", cut))
		require.True(t, gjson.GetBytes(m.events[len(m.events)-1].Metadata, "truncated").Bool())
		require.Equal(t, []string{"one", "two", "three", "so fa", "long"}, shown(t, m, "a"))
	})
	t.Run("an id is recorded once", func(t *testing.T) {
		m := begin()
		n := len(m.events)
		require.False(t, keep(t, m, "a", partial("p", "so far"), partial("2", "tw"), partial("", "nameless")))
		require.Len(t, m.events, n)
		require.Equal(t, []string{"one", "two", "three", "so fa"}, shown(t, m, "a"))
	})
	t.Run("a checkpoint without transcript gets none", func(t *testing.T) {
		m := begin()
		require.False(t, keep(t, m, "unknown", partial("x", "x")))
		play(t, m, []checkpoint{{id: "o", parent: "a", raw: []byte{0xa1, 'x'}}})
		require.False(t, keep(t, m, "o", partial("x", "x")))
	})
	t.Run("the next question comes after it", func(t *testing.T) {
		require.Equal(t, []string{"one", "two", "three", "so fa", "four"}, after(begin(), checkpoint{messages: list(m1, m2, m3, m4)}))
	})
	t.Run("saved after all, it is replaced in place", func(t *testing.T) {
		for _, said := range []string{"so fa", "so far so good"} { // also when nothing was missing
			m := begin()
			play(t, m, []checkpoint{{id: "h", parent: "a", messages: list(m1, m2, m3, m4)}, {id: "b", parent: "h", messages: list(m1, m2, m3, m4, ai("p", said))}})
			consistent(t, m)
			require.Equal(t, []string{"one", "two", "three", said, "four"}, shown(t, m, "b"))
			last := m.events[len(m.events)-1]
			require.Equal(t, "p", last.MessageID)
			require.False(t, gjson.GetBytes(last.Metadata, "partial").Bool())
			require.Equal(t, gjson.GetBytes(last.Metadata, "revises").Int(), int64(last.First))
		}
	})
	t.Run("condensed around", func(t *testing.T) {
		m := begin()
		require.Equal(t, []string{"one", "two", "three", "so fa", "[3: sum]", "four"}, after(m, checkpoint{messages: list(summary("s", "sum"), m4)}))
	})
	t.Run("a client deletes it", func(t *testing.T) {
		require.Equal(t, []string{"one", "two", "three"}, after(begin(), checkpoint{messages: list(m1, m2, m3), deleted: []string{"p"}}))
	})
	t.Run("a reset takes it along", func(t *testing.T) {
		require.Empty(t, after(begin(), checkpoint{messages: list()}))
	})
	t.Run("another branch does not have it", func(t *testing.T) {
		m := newMemory()
		play(t, m, []checkpoint{{id: "0", messages: list(m1)}, {id: "a", parent: "0", messages: list(m1, m2)}})
		require.True(t, keep(t, m, "a", partial("p", "so fa")))
		play(t, m, []checkpoint{{id: "b", parent: "0", messages: list(m1, m3)}})
		require.Equal(t, []string{"one", "three"}, shown(t, m, "b"))
	})
	t.Run("dropped", func(t *testing.T) {
		m := begin()
		seq := eventstore.Seq(len(m.events))
		require.NoError(t, eventstore.DropPartial(m, "t", "unknown", map[eventstore.Seq]bool{seq: true}))
		require.NoError(t, eventstore.DropPartial(m, "t", "a", map[eventstore.Seq]bool{seq + 1: true}))
		require.Equal(t, []string{"one", "two", "three", "so fa"}, shown(t, m, "a"))
		require.NoError(t, eventstore.DropPartial(m, "t", "a", map[eventstore.Seq]bool{seq: true}))
		require.Equal(t, []string{"one", "two", "three"}, shown(t, m, "a"))
		require.Equal(t, []string{"one", "two", "three", "four"}, after(m, checkpoint{messages: list(m1, m2, m3, m4)}))
	})
	t.Run("first of all", func(t *testing.T) {
		m := newMemory()
		play(t, m, []checkpoint{{id: "a"}})
		require.True(t, keep(t, m, "a", partial("p", "so fa")))
		require.Equal(t, []string{"so fa", "one"}, after(m, checkpoint{messages: list(m1)}))
	})
}
