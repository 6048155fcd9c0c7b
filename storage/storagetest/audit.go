package storagetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/access/audit"
	"understudy/auth"
)

var auditCases = map[string]func(*testing.T, Backend){
	"audit queries": func(t *testing.T, b Backend) {
		t.Helper()
		var want []audit.Entry
		for i := range 20 {
			e := audit.Entry{At: at(i), Event: audit.Events[i%len(audit.Events)], Identity: fmt.Sprint("ada 😀", i%2), Source: fmt.Sprint("192.0.2.", i%7), Resource: "r", Outcome: "401", Detail: "d", Count: i + 1}
			require.NoError(t, b.Audit.AppendAudit(ctx, []audit.Entry{e}))
			want = append(want, e)
		}
		b = b.reopen(t)
		find := func(q audit.Query) (list []audit.Entry) {
			t.Helper()
			list, err := b.Audit.Audit(ctx, q)
			require.NoError(t, err)
			for i := range list {
				require.Positive(t, list[i].ID)
				list[i].At = list[i].At.UTC()
			}
			return list
		}
		all := find(audit.Query{Limit: 100})
		require.Len(t, all, len(want))
		for i := range all {
			want[i].ID = all[i].ID
			require.True(t, i == 0 || all[i].ID > all[i-1].ID)
		}
		require.Equal(t, want, all)
		require.Equal(t, want[15:], find(audit.Query{Limit: 5}), "the newest")
		require.Equal(t, want[3:5], find(audit.Query{After: want[2].ID, Limit: 2}), "those that follow")
		require.Equal(t, want[18:], find(audit.Query{Since: at(18), Limit: 9}))
		require.Equal(t, []audit.Entry{want[6]}, find(audit.Query{Event: want[6].Event, Identity: want[6].Identity, Source: want[6].Source, Limit: 9}))
		require.Empty(t, find(audit.Query{Event: "' OR 1 = 1", Limit: 9}))
	},
	"audit of keys": func(t *testing.T, b Backend) {
		t.Helper()
		by := access.Enter(ctx, &access.Actor{Identity: "root"}, audit.CommandLine)
		k, text := auth.New("site", "ada", []string{auth.Read}, at(1), at(9))
		require.NoError(t, b.Keys.InsertKey(by, k))
		require.Error(t, b.Keys.InsertKey(by, k), "and its entry is not there either")
		require.NoError(t, b.Keys.ExpireKey(by, k.ID, at(3)))
		require.NoError(t, b.Keys.RevokeKey(by, k.ID, at(2)))
		require.Error(t, b.Keys.RevokeKey(by, "none", at(2)))
		list, err := b.Audit.Audit(ctx, audit.Query{Limit: 9})
		require.NoError(t, err)
		var events []string
		for _, e := range list {
			events = append(events, e.Event)
			require.Equal(t, []any{"root", audit.CommandLine, "key " + k.ID, "done", 1}, []any{e.Identity, e.Source, e.Resource, e.Outcome, e.Count})
			require.NotContains(t, fmt.Sprint(e), text[20:])
			require.NotContains(t, fmt.Sprint(e), k.Digest)
		}
		require.Equal(t, []string{audit.KeyCreated, audit.KeyExpires, audit.KeyRevoked}, events)
	},
	"audit retention": func(t *testing.T, b Backend) {
		t.Helper()
		for i := range 30 {
			event := audit.Denied
			if i%10 == 5 {
				event = audit.KeyCreated
			}
			require.NoError(t, b.Audit.AppendAudit(ctx, []audit.Entry{{At: at(i), Event: event}}))
		}
		seconds := func() (out []int) {
			t.Helper()
			list, err := b.Audit.Audit(ctx, audit.Query{Limit: 99})
			require.NoError(t, err)
			for _, e := range list {
				out = append(out, int(e.At.Sub(base)/time.Second))
			}
			return out
		}
		trim := func(before time.Time, keep, limit int) int {
			t.Helper()
			n, err := b.Audit.TrimAudit(ctx, before, keep, limit)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 3, trim(at(4), 100, 3), "the limit")
		require.Equal(t, 1, trim(at(4), 100, 3))
		require.Equal(t, 4, seconds()[0])
		n := 0
		for {
			more := trim(at(4), 8, 5)
			n += more
			if more < 5 {
				break
			}
		}
		require.Equal(t, []int{5, 15, 22, 23, 24, 25, 26, 27, 28, 29}, seconds(), "changes of keys stay")
		require.Equal(t, 16, n)
		require.Equal(t, 2, trim(at(20), 100, 100), "until they are old")
	},
	// A reader that continues after the last entry that it has seen misses none, however many write.
	"audit followers": func(t *testing.T, b Backend) {
		t.Helper()
		const writers, each = 4, 25
		var group sync.WaitGroup
		done := make(chan struct{})
		for w := range writers {
			group.Go(func() {
				for i := range each {
					if err := b.Audit.AppendAudit(ctx, []audit.Entry{{At: at(i), Event: audit.Denied, Detail: fmt.Sprint(w, "/", i)}, {At: at(i), Event: audit.Denied}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		go func() { group.Wait(); close(done) }()
		seen, after := 0, int64(0)
		for last := false; ; {
			list, err := b.Audit.Audit(ctx, audit.Query{After: after, Limit: 1000})
			require.NoError(t, err)
			seen += len(list)
			if len(list) > 0 {
				after = list[len(list)-1].ID
			}
			if last {
				break
			}
			select {
			case <-done:
				last = true
			default:
			}
		}
		require.Equal(t, 2*writers*each, seen)
	},
}
