package storagetest

import (
	"fmt"
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
			got, err := b.Runs.NextCron(ctx, true)
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
			got, err := tx.DueCrons(at(3), 8, true)
			require.NoError(t, err)
			require.Equal(t, []id.Cron{cronID(2), cronID(3)}, cronIDs(got))
			got, err = tx.DueCrons(at(3), 1, true)
			require.Equal(t, []id.Cron{cronID(2)}, cronIDs(got))
			return err
		})
	},
	"scheduled tasks": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		task := func(n int, account string, thread id.Thread) *run.Cron {
			return newCron(n, func(c *run.Cron) {
				last := at(7)
				c.Account, c.Thread, c.OnRunCompleted = account, thread, ""
				c.Task = &run.Task{Title: "T", Prompt: "P", Spec: raw(`{"cron":"* * * * *"}`), Thread: thread, Status: run.TaskEnabled, LastAt: &last, LastRun: "r", LastError: "e", Runs: 2}
			})
		}
		one, two, foreign, plain := task(1, "ann", threadID(1)), task(2, "ann", ""), task(3, "ben", threadID(1)), newCron(4, nil)
		insertCrons(t, b, one, two, foreign, plain)
		for _, want := range []*run.Cron{one, two, foreign} {
			got, err := b.Runs.Cron(ctx, want.ID)
			require.NoError(t, err)
			same(t, want, got)
		}
		for _, tt := range []struct {
			q    run.CronQuery
			want []id.Cron
		}{
			{run.CronQuery{}, []id.Cron{cronID(4)}},
			{run.CronQuery{Assistant: "a"}, []id.Cron{cronID(4)}},
			{run.CronQuery{Thread: threadID(1)}, []id.Cron{}},
			{run.CronQuery{Account: "ann"}, []id.Cron{cronID(2), cronID(1)}},
			{run.CronQuery{Account: "ann", Thread: threadID(1)}, []id.Cron{cronID(1)}},
			{run.CronQuery{Account: "nobody"}, []id.Cron{}},
			{run.CronQuery{Tasks: true}, []id.Cron{cronID(3), cronID(2), cronID(1)}},
		} {
			got, err := b.Runs.Crons(ctx, tt.q)
			require.NoError(t, err)
			require.Equal(t, tt.want, cronIDs(got), "%+v", tt.q)
			for _, c := range got {
				require.Equal(t, c.Account != "", len(c.Payload) == 0, "lists of tasks leave payloads out")
			}
			n, err := b.Runs.CountCrons(ctx, tt.q)
			require.NoError(t, err)
			require.Len(t, tt.want, n)
		}
		write(t, b, func(tx run.Tx) error {
			for account, want := range map[string]int{"ann": 2, "ben": 1, "nobody": 0, "": 0} {
				n, err := tx.CountTasks(account)
				require.NoError(t, err)
				require.Equal(t, want, n, account)
			}
			return nil
		})
		for tasks, want := range map[bool]time.Time{true: at(1), false: at(4)} {
			next, err := b.Runs.NextCron(ctx, tasks)
			require.NoError(t, err)
			require.Equal(t, want, next)
		}
		write(t, b, func(tx run.Tx) error {
			all, err := tx.DueCrons(at(9), 9, true)
			require.NoError(t, err)
			require.Equal(t, []id.Cron{cronID(1), cronID(2), cronID(3), cronID(4)}, cronIDs(all))
			plain, err := tx.DueCrons(at(9), 9, false)
			require.Equal(t, []id.Cron{cronID(4)}, cronIDs(plain))
			return err
		})
		for tasks, want := range map[bool][]id.Cron{true: {cronID(1), cronID(2), cronID(3)}, false: {cronID(4)}} {
			committed, err := b.Runs.DueCrons(ctx, at(9), 3, tasks)
			require.NoError(t, err)
			require.Equal(t, want, cronIDs(committed))
		}
	},
	"occurrences": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2), newThread(3))
		insertCrons(t, b, newCron(1, func(c *run.Cron) {
			c.Account, c.Thread, c.Task = "ann", threadID(2), &run.Task{Spec: raw(`{}`)}
		}), newCron(2, nil))
		pending, failed, other := newRun(1, 1), newRun(2, 3), newRun(3, 2)
		failed.Status, failed.Error, failed.EndedAt = run.Error, raw(`{"error":"E","message":"no"}`), at(5)
		insertRuns(t, b, pending, failed, other)
		list := []*run.Occurrence{
			{ID: "a", Cron: cronID(1), Thread: threadID(1), Run: pending.ID, Manual: true, At: at(1), Status: run.OccurrenceRunning},
			{ID: "b", Cron: cronID(1), Thread: threadID(3), Run: failed.ID, At: at(2), Status: run.OccurrenceFailed, Error: "no", Ended: at(5)},
			{ID: "c", Cron: cronID(1), Thread: threadID(2), At: at(3), Status: run.OccurrenceSkipped, Error: "why", Ended: at(3)},
			{ID: "d", Cron: cronID(1), Thread: threadID(2), Run: runID(99), At: at(4), Status: run.OccurrenceInterrupted, Error: "the run was deleted"},
		}
		write(t, b, func(tx run.Tx) error {
			for _, o := range list {
				require.NoError(t, tx.InsertOccurrence(o))
			}
			active, err := tx.ActiveOccurrences()
			require.Equal(t, []id.Cron{cronID(1)}, active)
			return err
		})
		read := func(limit, offset int) (ids []string) {
			got, err := b.Runs.Occurrences(ctx, cronID(1), limit, offset)
			require.NoError(t, err)
			for _, o := range got {
				ids = append(ids, o.ID)
				same(t, list[int(o.ID[0]-'a')], o)
			}
			return ids
		}
		require.Equal(t, []string{"d", "c", "b", "a"}, read(9, 0))
		require.Equal(t, []string{"c", "b"}, read(2, 1))
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		require.Equal(t, []string{"d", "c", "b"}, read(9, 0), "an occurrence goes with its thread")
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(2)) })
		require.Empty(t, read(9, 0), "and with the task, which goes with the thread that it continues")
		_, err := b.Runs.Cron(ctx, cronID(1))
		isKind(t, err, fault.NotFound)
		write(t, b, func(tx run.Tx) error {
			require.NoError(t, tx.InsertOccurrence(&run.Occurrence{ID: "e", Cron: cronID(2), Thread: threadID(3), At: at(1)}))
			return tx.DeleteCron(cronID(2))
		})
		got, err := b.Runs.Occurrences(ctx, cronID(2), 9, 0)
		require.NoError(t, err)
		require.Empty(t, got)
	},
	"old occurrences": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		insertCrons(t, b, newCron(1, nil), newCron(2, nil))
		write(t, b, func(tx run.Tx) error {
			require.NoError(t, tx.InsertOccurrence(&run.Occurrence{ID: "other", Cron: cronID(2), Thread: threadID(1), At: at(0)}))
			for n := range run.MaxOccurrences + 3 {
				require.NoError(t, tx.InsertOccurrence(&run.Occurrence{ID: fmt.Sprintf("%04d", n), Cron: cronID(1), Thread: threadID(1), At: at(n / 2)}))
			}
			return nil
		})
		got, err := b.Runs.Occurrences(ctx, cronID(1), 0, 0)
		require.NoError(t, err)
		require.Len(t, got, run.MaxOccurrences)
		require.Equal(t, "0003", got[len(got)-1].ID, "the oldest are gone")
		got, err = b.Runs.Occurrences(ctx, cronID(2), 0, 0)
		require.NoError(t, err)
		require.Len(t, got, 1)
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
