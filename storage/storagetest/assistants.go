package storagetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
)

func newAssistant(n int) *assistant.Assistant {
	return &assistant.Assistant{
		ID: id.Assistant(uuid(n)), GraphID: "g", Name: fmt.Sprintf("Assistant %d", n), Config: raw(`{}`), Context: raw(`{}`), Metadata: raw(`{}`),
		Version: 1, CreatedAt: at(n), UpdatedAt: at(n),
	}
}

func assistantIDs(list []*assistant.Assistant) []id.Assistant {
	out := []id.Assistant{}
	for _, a := range list {
		out = append(out, a.ID)
	}
	return out
}

func writeAssistants(t *testing.T, b Backend, fn func(tx assistant.Tx) error) {
	t.Helper()
	require.NoError(t, b.Assistants.Write(ctx, fn))
}

var assistantCases = map[string]func(*testing.T, Backend){
	"rows and versions": func(t *testing.T, b Backend) {
		text := "what it does"
		first := newAssistant(1)
		first.Description, first.Config, first.Context = &text, raw(`{"configurable": {"n":1.0}}`), raw(`{"c":1}`)
		writeAssistants(t, b, func(tx assistant.Tx) error { return tx.InsertAssistant(first) })
		got, err := b.Assistants.Assistant(ctx, first.ID)
		require.NoError(t, err)
		same(t, first, got)
		got, err = b.Runs.Assistant(ctx, first.ID)
		require.NoError(t, err)
		same(t, first, got)

		second := *first
		second.Description, second.Version, second.Name, second.Metadata, second.UpdatedAt = nil, 2, "Second", raw(`{"v":2}`), at(5)
		writeAssistants(t, b, func(tx assistant.Tx) error { return tx.PutAssistant(&second, true) })
		got, err = b.Assistants.Assistant(ctx, first.ID)
		require.NoError(t, err)
		same(t, &second, got)

		// Back to the first: the row changes, the versions do not.
		writeAssistants(t, b, func(tx assistant.Tx) error {
			old, err := tx.Version(first.ID, 1)
			if err != nil {
				return err
			}
			if last, err := tx.LastVersion(first.ID); err != nil || last != 2 {
				return fmt.Errorf("last version is %d: %w", last, err)
			}
			return tx.PutAssistant(old, false)
		})
		got, err = b.Assistants.Assistant(ctx, first.ID)
		require.NoError(t, err)
		same(t, first, got)
		versions, err := b.Assistants.Versions(ctx, first.ID, nil, 0, 0)
		require.NoError(t, err)
		same(t, []*assistant.Assistant{&second, first}, versions)
		versions, err = b.Assistants.Versions(ctx, first.ID, nil, 1, 1)
		require.NoError(t, err)
		same(t, []*assistant.Assistant{first}, versions)
		versions, err = b.Assistants.Versions(ctx, first.ID, raw(`{"v":2}`), 0, 0)
		require.NoError(t, err)
		same(t, []*assistant.Assistant{&second}, versions)

		writeAssistants(t, b, func(tx assistant.Tx) error { return tx.DeleteAssistant(first.ID) })
		_, err = b.Assistants.Assistant(ctx, first.ID)
		isKind(t, err, fault.NotFound)
		versions, err = b.Assistants.Versions(ctx, first.ID, nil, 0, 0)
		require.NoError(t, err)
		require.Empty(t, versions)
		writeAssistants(t, b, func(tx assistant.Tx) error { return tx.InsertAssistant(first) })
	},
	"conflict and not found": func(t *testing.T, b Backend) {
		a := newAssistant(1)
		writeAssistants(t, b, func(tx assistant.Tx) error { return tx.InsertAssistant(a) })
		isKind(t, b.Assistants.Write(ctx, func(tx assistant.Tx) error { return tx.InsertAssistant(a) }), fault.Conflict)
		none := newAssistant(2)
		for _, fn := range []func(assistant.Tx) error{
			func(tx assistant.Tx) error { _, err := tx.Assistant(none.ID); return err },
			func(tx assistant.Tx) error { return tx.PutAssistant(none, true) },
			func(tx assistant.Tx) error { _, err := tx.Version(a.ID, 2); return err },
			func(tx assistant.Tx) error { _, err := tx.LastVersion(none.ID); return err },
			func(tx assistant.Tx) error { return tx.DeleteAssistant(none.ID) },
		} {
			isKind(t, b.Assistants.Write(ctx, fn), fault.NotFound)
		}
	},
	"search": func(t *testing.T, b Backend) {
		one, two, three := newAssistant(1), newAssistant(2), newAssistant(3)
		one.Name, two.Name, three.Name = "Ärzte 100%", "beta", "Alpha"
		two.GraphID, two.Metadata = "h", raw(`{"k":{"v":1,"w":2}}`)
		three.CreatedAt, one.UpdatedAt = at(2), at(9)
		writeAssistants(t, b, func(tx assistant.Tx) error {
			return firstError(tx.InsertAssistant(one), tx.InsertAssistant(two), tx.InsertAssistant(three))
		})
		for _, tt := range []struct {
			name string
			q    assistant.Query
			want []id.Assistant
		}{
			{"newest first, ties by id", assistant.Query{}, []id.Assistant{three.ID, two.ID, one.ID}},
			{"ascending", assistant.Query{Ascending: true}, []id.Assistant{one.ID, two.ID, three.ID}},
			{"updated", assistant.Query{SortBy: "updated_at"}, []id.Assistant{one.ID, three.ID, two.ID}},
			{"id", assistant.Query{SortBy: "assistant_id"}, []id.Assistant{three.ID, two.ID, one.ID}},
			{"graph", assistant.Query{SortBy: "graph_id"}, []id.Assistant{two.ID, three.ID, one.ID}},
			{"page", assistant.Query{Limit: 1, Offset: 1}, []id.Assistant{two.ID}},
			{"of a graph", assistant.Query{GraphID: "h"}, []id.Assistant{two.ID}},
			{"metadata", assistant.Query{Metadata: raw(`{"k":{"w":2.0}}`)}, []id.Assistant{two.ID}},
			{"name", assistant.Query{Name: "ALPH"}, []id.Assistant{three.ID}},
			{"part of a name", assistant.Query{Name: "ta"}, []id.Assistant{two.ID}},
			{"name, not ASCII", assistant.Query{Name: "äRZ"}, []id.Assistant{one.ID}},
			{"name is no pattern", assistant.Query{Name: "0%"}, []id.Assistant{one.ID}},
			{"name is no wildcard", assistant.Query{Name: "_eta"}, []id.Assistant{}},
		} {
			got, err := b.Assistants.Assistants(ctx, tt.q)
			require.NoError(t, err, tt.name)
			require.Equal(t, tt.want, assistantIDs(got), tt.name)
			if tt.q.Limit == 0 {
				n, err := b.Assistants.CountAssistants(ctx, tt.q)
				require.NoError(t, err)
				require.Equal(t, len(tt.want), n, tt.name)
			}
		}
		_, err := b.Assistants.Assistants(ctx, assistant.Query{SortBy: "nonsense"})
		isKind(t, err, fault.Invalid)
	},
	"threads of an assistant": func(t *testing.T, b Backend) {
		a := newAssistant(1)
		mine, other := newThread(1), newThread(2)
		mine.Metadata = raw(`{"assistant_id":"` + string(a.ID) + `","graph_id":"g"}`)
		other.Metadata = raw(`{"assistant_id":"x"}`)
		insertThreads(t, b, mine, other)
		writeAssistants(t, b, func(tx assistant.Tx) error {
			got, err := tx.ThreadsOf(a.ID)
			if err != nil {
				return err
			}
			if len(got) != 1 || got[0] != mine.ID {
				return fmt.Errorf("threads of the assistant: %v", got)
			}
			return nil
		})
	},
}
