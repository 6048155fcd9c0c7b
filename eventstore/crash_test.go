package eventstore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
	"understudy/storage/sqlite"
)

const crashDir, crashWork = "UNDERSTUDY_CRASH_DIR", "UNDERSTUDY_CRASH_WORK"

// crashTalk is the conversation that is killed again and again.
func crashTalk() *talk {
	t := newTalk(5, true)
	t.style = langchain
	t.play(200, true)
	return t
}

// TestCrashChild is the process that TestKilled kills: it records or backfills until it is done or dies.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("runs as the child of TestKilled")
	}
	talk := crashTalk()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir})
	require.NoError(t, err)
	fmt.Println("begins")
	if os.Getenv(crashWork) == "backfill" {
		b := eventstore.NewBackfiller(s)
		eventstore.SetBatch(b, 3, 1<<20)
		require.NoError(t, b.Ensure(context.Background(), "t", ""))
	} else {
		links, err := s.Lineage(context.Background(), "t")
		require.NoError(t, err)
		for _, m := range talk.steps[len(links):] {
			require.NoError(t, s.Runs().Write(context.Background(), func(tx run.Tx) error { return save(tx, talk, m, "t", false, true) }))
		}
	}
	require.NoError(t, s.Close())
}

// Killed at any moment while a conversation is recorded or backfilled, and started again until that is done: what was recorded is what
// would have been, without a gap and without anything twice.
func TestKilled(t *testing.T) {
	talk := crashTalk()
	for _, work := range []string{"record", "backfill"} {
		t.Run(work, func(t *testing.T) { // one after the other: a child being started holds, for a moment, what its parent has open
			whole := open(t)
			if work == "record" {
				whole.play(crashTalk(), "t", how{})
			} else { // without changes that no checkpoint shows
				whole.play(crashTalk(), "t", how{recordFrom: len(talk.steps)})
				require.NoError(t, eventstore.NewBackfiller(whole).Ensure(context.Background(), "t", ""))
			}
			want := whole.log("t")
			dir := t.TempDir()
			reopen := func() database {
				s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir})
				require.NoError(t, err)
				return database{s, t}
			}
			if work == "backfill" {
				d := reopen()
				d.play(crashTalk(), "t", how{recordFrom: len(talk.steps)})
				require.NoError(t, d.Close())
			}
			r := rand.New(rand.NewPCG(1, 2))
			kills, patience := 0, 30
			for {
				ctx, cancel := context.WithCancel(context.Background())
				cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCrashChild$")
				cmd.Env = append(os.Environ(), crashDir+"="+dir, crashWork+"="+work)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				_, err = out.Read(make([]byte, 7)) // it begins
				require.NoError(t, err)
				timer := time.AfterFunc(time.Duration(r.IntN(patience))*time.Millisecond, cancel)
				patience = patience*3/2 + 1 // however slow the machine, it is done at some time
				said, err := io.ReadAll(out)
				require.NoError(t, err)
				err = cmd.Wait()
				timer.Stop()
				killed := ctx.Err() != nil
				cancel()
				if err == nil {
					break
				}
				require.True(t, killed, "the child failed: %s", said)
				kills++
				d := reopen()
				got := d.log("t")
				require.LessOrEqual(t, len(got), len(want))
				if diff := cmp.Diff(want[:len(got)], got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("after %d kills (-whole +killed)\n%s", kills, diff)
				}
				require.NoError(t, d.Close())
			}
			t.Logf("killed %d times", kills)
			d := reopen()
			if diff := cmp.Diff(want, d.log("t")); diff != "" {
				t.Fatalf("after %d kills (-whole +killed)\n%s", kills, diff)
			}
			for _, m := range talk.steps {
				require.Equal(t, whole.shown("t", id.Checkpoint(m.id)), d.shown("t", id.Checkpoint(m.id)))
			}
			require.NoError(t, d.Close())
		})
	}
}
