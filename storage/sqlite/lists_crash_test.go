package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	domain "understudy/thread"
)

const listCrashDir = "UNDERSTUDY_LIST_CRASH_DIR"

// steadyPut is the nth checkpoint of a thread whose list has one item more with each.
func steadyPut(thread id.Thread, n int) *checkpointer.Put {
	return &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: thread, ID: id.Checkpoint(fmt.Sprintf("%06d", n))}, Run: id.Run(fmt.Sprint("run", n/5)),
			Data: json.RawMessage(fmt.Sprintf(`{"channel_versions":{"messages":"%d"}}`, n)),
		},
		Blobs: []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprint(n), Type: "msgpack", Data: talk(n)}},
	}
}

// TestListCrashChild is the process that TestListsSurviveKill kills: threads grow, are pruned and
// rolled back.
func TestListCrashChild(t *testing.T) {
	dir := os.Getenv(listCrashDir)
	if dir == "" {
		t.Skip("runs as the child of TestListsSurviveKill")
	}
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir})
	require.NoError(t, err)
	done := make(chan string)
	for w := range 4 {
		thread := id.Thread(fmt.Sprint("thread", w))
		if _, err := s.Thread(ctx, thread); fault.Is(err, fault.NotFound) {
			row := &domain.Thread{ID: thread, Status: domain.Idle, Metadata: []byte(`{"n":1}`)}
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.InsertThread(row) }))
		}
		head, err := s.LoadCheckpoint(ctx, checkpointer.Key{Thread: thread})
		require.NoError(t, err)
		n := 0
		if head != nil {
			_, err = fmt.Sscanf(string(head.ID), "%d", &n)
			require.NoError(t, err)
		}
		go func() {
			for n++; ; n++ {
				err := s.write(ctx, func(tx *Tx) error { return tx.PutCheckpoint(steadyPut(thread, n)) })
				if err == nil && n%17 == 0 {
					err = s.write(ctx, func(tx *Tx) error { return tx.DeleteRunCheckpoints(thread, id.Run(fmt.Sprint("run", n/5-1)), false) })
				}
				if err == nil && n%40 == 0 {
					var plan *domain.PrunePlan
					if plan, err = s.PlanPrune(ctx, thread, 7); err == nil {
						for _, step := range plan.Steps {
							err = errors.Join(err, s.write(ctx, func(tx *Tx) error { return tx.PruneStep(thread, &step) }))
						}
					}
				}
				if err != nil {
					t.Errorf("step %d of %s: %v", n, thread, err)
				}
				done <- fmt.Sprintf("done %d %d\n", w, n)
			}
		}()
	}
	for text := range done {
		fmt.Print(text)
	}
}

// After kill -9 every list that was answered reads back, and no part is without a list.
func TestListsSurviveKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answered := [4]int{}
	for range 3 {
		cmd := osexec.Command(os.Args[0], "-test.run=^TestListCrashChild$", "-test.v")
		cmd.Env = append(os.Environ(), listCrashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		note := func(line string) bool {
			var w, n int
			if !strings.HasPrefix(line, "done ") {
				return false
			}
			if _, err := fmt.Sscanf(line, "done %d %d", &w, &n); err == nil && w < len(answered) {
				answered[w] = n
			}
			return true
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 150 && lines.Scan(); {
			if note(lines.Text()) {
				n++
			}
		}
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() {
			note(lines.Text())
		}
		_ = cmd.Wait() // killed

		s, err := Open(context.Background(), Options{Dir: dir})
		require.NoError(t, err)
		for w, n := range answered {
			require.Positive(t, n)
			list, err := s.ListCheckpoints(context.Background(), checkpointer.List{Thread: id.Thread(fmt.Sprint("thread", w))})
			require.NoError(t, err)
			require.NotEmpty(t, list)
			require.GreaterOrEqual(t, string(list[0].ID), fmt.Sprintf("%06d", n))
			for _, tuple := range list {
				var step int
				_, err := fmt.Sscanf(string(tuple.ID), "%d", &step)
				require.NoError(t, err)
				require.Equal(t, talk(step), tuple.Blobs[0].Bytes())
			}
		}
		requireNoGarbage(t, s)
		requireWhole(t, s)
		require.NoError(t, s.Close())
	}
}
