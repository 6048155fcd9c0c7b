package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

func cronID(n int) id.Cron { return id.Cron(uuid(n)) }

func newCron(n int, change func(*run.Cron)) *run.Cron {
	next := at(n)
	c := &run.Cron{
		ID: cronID(n), Assistant: "a", Schedule: "* * * * *", Timezone: "UTC", Payload: raw(`{"input": {"n":1.0}}`), Next: &next,
		Metadata: raw(`{}`), OnRunCompleted: "delete", Enabled: true, CreatedAt: at(n), UpdatedAt: at(n),
	}
	if change != nil {
		change(c)
	}
	return c
}

func insertCrons(t *testing.T, b Backend, list ...*run.Cron) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		for _, c := range list {
			if err := tx.InsertCron(c); err != nil {
				return err
			}
		}
		return nil
	})
}

func cronIDs(list []*run.Cron) []id.Cron {
	out := []id.Cron{}
	for _, c := range list {
		out = append(out, c.ID)
	}
	return out
}

var cronCases = map[string]func(*testing.T, Backend){
	"every field comes back as it was": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		end := at(99)
		full := newCron(1, func(c *run.Cron) { c.Thread, c.EndTime = threadID(1), &end })
		bare := newCron(2, func(c *run.Cron) { c.Next, c.OnRunCompleted, c.Enabled, c.Timezone = nil, "", false, "" })
		insertCrons(t, b, full, bare)
		for _, want := range []*run.Cron{full, bare} {
			got, err := b.Runs.Cron(ctx, want.ID)
			require.NoError(t, err)
			same(t, want, got)
		}
		full.EndTime, full.Next, full.Thread = nil, nil, ""
		write(t, b, func(tx run.Tx) error { return tx.UpdateCron(full) })
		got, err := b.Runs.Cron(ctx, full.ID)
		require.NoError(t, err)
		same(t, full, got)

		isKind(t, b.Runs.Write(ctx, func(tx run.Tx) error { return tx.InsertCron(full) }), fault.Conflict)
		write(t, b, func(tx run.Tx) error { return tx.DeleteCron(full.ID) })
		_, err = b.Runs.Cron(ctx, full.ID)
		isKind(t, err, fault.NotFound)
		for _, fn := range []func(run.Tx) error{
			func(tx run.Tx) error { return tx.UpdateCron(full) },
			func(tx run.Tx) error { return tx.DeleteCron(full.ID) },
			func(tx run.Tx) error { _, err := tx.Cron(full.ID); return err },
		} {
			isKind(t, b.Runs.Write(ctx, fn), fault.NotFound)
		}
	},
	"due ones": func(t *testing.T, b Backend) {
		next := func() time.Time {
			got, err := b.Runs.NextCron(ctx)
			require.NoError(t, err)
			return got
		}
		require.True(t, next().IsZero())
		insertCrons(
			t, b, newCron(3, nil), newCron(2, nil), newCron(9, nil),
			newCron(1, func(c *run.Cron) { c.Enabled = false }), newCron(4, func(c *run.Cron) { c.Next = nil }),
		)
		require.Equal(t, at(2), next())
		write(t, b, func(tx run.Tx) error {
			got, err := tx.DueCrons(at(3), 8)
			require.NoError(t, err)
			require.Equal(t, []id.Cron{cronID(2), cronID(3)}, cronIDs(got))
			got, err = tx.DueCrons(at(3), 1)
			require.Equal(t, []id.Cron{cronID(2)}, cronIDs(got))
			return err
		})
	},
	"search": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		off := false
		insertCrons(
			t, b, newCron(1, func(c *run.Cron) { c.Thread = threadID(1) }),
			newCron(2, func(c *run.Cron) { c.Assistant, c.Metadata = "other", raw(`{"k":{"v":1,"w":2}}`) }),
			newCron(3, func(c *run.Cron) { c.Enabled, c.CreatedAt = false, at(2) }),
		)
		for _, tt := range []struct {
			name string
			q    run.CronQuery
			want []id.Cron
		}{
			{"all, newest first, ties by id", run.CronQuery{}, []id.Cron{cronID(3), cronID(2), cronID(1)}},
			{"ascending", run.CronQuery{Ascending: true}, []id.Cron{cronID(1), cronID(2), cronID(3)}},
			{"page", run.CronQuery{Limit: 1, Offset: 1}, []id.Cron{cronID(2)}},
			{"thread", run.CronQuery{Thread: threadID(1)}, []id.Cron{cronID(1)}},
			{"assistant", run.CronQuery{Assistant: "other"}, []id.Cron{cronID(2)}},
			{"thread and assistant", run.CronQuery{Thread: threadID(1), Assistant: "other"}, []id.Cron{}},
			{"metadata", run.CronQuery{Metadata: raw(`{"k":{"v":1.0}}`)}, []id.Cron{cronID(2)}},
			{"disabled", run.CronQuery{Enabled: &off}, []id.Cron{cronID(3)}},
			{"by due time", run.CronQuery{SortBy: "next_run_date", Ascending: true}, []id.Cron{cronID(1), cronID(2), cronID(3)}},
			{"by end", run.CronQuery{SortBy: "end_time"}, []id.Cron{cronID(3), cronID(2), cronID(1)}},
		} {
			got, err := b.Runs.Crons(ctx, tt.q)
			require.NoError(t, err, tt.name)
			require.Equal(t, tt.want, cronIDs(got), tt.name)
			tt.q.Limit, tt.q.Offset = 0, 0
			n, err := b.Runs.CountCrons(ctx, tt.q)
			require.NoError(t, err)
			if tt.name != "page" {
				require.Equal(t, len(tt.want), n, tt.name)
			}
		}
		_, err := b.Runs.Crons(ctx, run.CronQuery{SortBy: "nonsense"})
		isKind(t, err, fault.Invalid)
	},
}
