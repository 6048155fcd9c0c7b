package readmodel_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/thread"
)

// BenchmarkRecent reads pages of 100 among 100,000 threads with three rows of the timeline each, all in reach or one of 1,000.
func BenchmarkRecent(b *testing.B) {
	for _, engine := range []string{"sqlite", "postgres"} {
		where := ""
		if engine == "postgres" {
			where = postgrestest.Database(b)
		}
		s := open(b, where)
		base := time.Now().Add(-time.Hour)
		const threads, batch = 100_000, 1000
		for from := 0; from < threads; from += batch {
			var list []readmodel.Change
			require.NoError(b, s.Threads().Write(b.Context(), func(tx thread.Tx) error {
				list = nil
				for n := from; n < from+batch; n++ {
					at := base.Add(time.Duration(n) * time.Millisecond).Truncate(time.Microsecond)
					name := id.Thread(fmt.Sprintf("00000000-0000-7000-8000-%012d", n))
					if err := tx.InsertThread(&thread.Thread{
						ID: name, CreatedAt: at, UpdatedAt: at, StateUpdatedAt: at, Config: []byte(`{}`), Status: thread.Idle, Metadata: fmt.Appendf(nil, `{"owner":"%d"}`, n%1000),
					}); err != nil {
						return err
					}
					c := readmodel.Change{Thread: name, Now: eventstore.Offset{Thread: name, Created: at, Seq: 3}}
					c.Head = &readmodel.Row{Thread: name, Model: readmodel.Heads, Name: readmodel.Completed, Seq: 3, At: at.UnixMicro(), Run: "r"}
					for seq := range eventstore.Seq(3) {
						c.Put = append(c.Put, readmodel.Row{Thread: name, Model: readmodel.Timeline, Name: readmodel.Completed, Seq: seq + 1, At: at.UnixMicro(), Run: "r"})
					}
					c.Put = append(c.Put, readmodel.Row{Thread: name, Model: readmodel.Branches, Name: "00000000-0000-7000-8000-000000000000", Seq: 1, At: at.UnixMicro(), Ref: 1})
					list = append(list, c)
				}
				return nil
			}))
			refused, err := s.Project(b.Context(), readmodel.Follower, list)
			require.NoError(b, err)
			require.Empty(b, refused)
		}
		filter, err := access.ParseFilter(json.RawMessage(`{"owner":"7"}`))
		require.NoError(b, err)
		narrow := access.Narrow(b.Context(), access.Threads, filter)
		for _, model := range []string{readmodel.Timeline, readmodel.Heads} {
			b.Run(engine+"/"+model, func(b *testing.B) {
				for b.Loop() {
					page, _, err := s.Recent(b.Context(), model, readmodel.Place{}, 100)
					require.NoError(b, err)
					require.Len(b, page, 100)
				}
			})
			b.Run(engine+"/"+model+"/one_of_1000", func(b *testing.B) {
				for b.Loop() {
					page, _, err := s.Recent(narrow, model, readmodel.Place{}, 100)
					require.NoError(b, err)
					require.NotEmpty(b, page)
				}
			})
		}
		b.Run(engine+"/branches", func(b *testing.B) {
			for b.Loop() {
				l, err := s.models.Branches(b.Context(), "00000000-0000-7000-8000-000000000000", "", 100)
				require.NoError(b, err)
				require.Len(b, l.Forks, 100)
			}
		})
	}
}
