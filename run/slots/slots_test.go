package slots_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run/slots"
)

// In any order of operations: never more runs than slots, or than a graph may have; nothing begins while a suspect is in line; new runs that wait get slots in
// the order in which they came; and what was freed is not lost.
func TestSlots(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
			most, limit := 1+random.IntN(4), 1+random.IntN(2)
			s := slots.New(most, map[string]int{"limited": limit, "never": 0}, func() {})
			var reserved int     // not used yet
			var running []string // graphs
			var line []*slots.Turn
			queued := false
			var waiting, granted []int // numbers of new runs that wait for a slot
			number := 0
			var mu sync.Mutex // held but for wait
			mu.Lock()
			wait := func(d time.Duration) {
				mu.Unlock()
				time.Sleep(d)
				synctest.Wait()
				mu.Lock()
			}
			check := func(n, asked int) {
				require.LessOrEqual(t, n, asked)
				if len(line) > 0 {
					require.Zero(t, n, "seed %d: a run began beside a suspect", seed)
				}
				reserved += n
				require.LessOrEqual(t, reserved+len(running)+len(granted), most, "seed %d", seed)
			}
			for range 200 {
				switch n := 1 + random.IntN(3); random.IntN(10) {
				case 0:
					taken := s.Reserve(n)
					if len(waiting) > 0 {
						require.Zero(t, taken, "seed %d: a new run overtook one that waits", seed)
					}
					check(taken, n)
				case 1:
					s.Arrived()
					queued = true
					check(s.ReserveQueued(n), n)
				case 2:
					arrivals := s.Arrivals()
					s.Empty(arrivals)
					s.Unowe()
					queued = false
				case 3:
					if len(line) > 0 || len(waiting) == 8 {
						continue
					}
					number++
					mine := number
					waiting = append(waiting, mine)
					go func() {
						ok := s.ReserveSoon(t.Context())
						mu.Lock()
						defer mu.Unlock()
						if ok {
							granted = append(granted, mine)
						}
						waiting = slices.DeleteFunc(waiting, func(n int) bool { return n == mine })
					}()
				case 4, 5:
					if reserved == 0 {
						continue
					}
					graph := []string{"free", "limited", "never"}[random.IntN(3)]
					if s.Enter(graph) {
						running = append(running, graph)
						reserved--
					} else {
						require.Contains(t, s.Full(), graph)
					}
				case 6, 7:
					if len(running) == 0 {
						continue
					}
					s.Done(running[0])
					running = running[1:]
				case 8:
					if reserved > 0 {
						s.Release(1)
						reserved--
					}
				case 9:
					if len(line) > 0 && random.IntN(2) == 0 {
						first := line[0]
						<-first.First()
						first.Leave()
						first.Leave()
						line = line[1:]
					} else if len(line) < 2 {
						line = append(line, s.LineUp())
					}
				}
				wait(0)
				if len(granted) > 0 && len(waiting) > 0 {
					require.Less(t, slices.Max(granted), slices.Min(waiting), "seed %d", seed)
				}
				require.NotContains(t, running, "never")
				require.LessOrEqual(t, count(running, "limited"), limit)
				require.LessOrEqual(t, reserved+len(running)+len(granted), most, "seed %d", seed)
				if !queued && len(line) == 0 && len(waiting) > 0 {
					require.Equal(t, most, reserved+len(running)+len(granted), "seed %d: a slot is free and %d runs wait", seed, len(waiting))
				}
				if random.IntN(3) == 0 {
					began := len(granted)
					granted = nil
					for range began { // they end, and others are granted theirs
						s.Done("free")
					}
					wait(0)
				}
				if random.IntN(20) == 0 {
					wait(slots.ReserveWait)
					require.Empty(t, waiting)
				}
			}
			wait(slots.ReserveWait)
			for _, turn := range line {
				turn.Leave()
			}
			wait(0)
			for range granted {
				s.Done("free")
			}
			for _, graph := range running {
				s.Done(graph)
			}
			s.Release(reserved)
			s.Empty(s.Arrivals())
			s.Unowe()
			require.Equal(t, most, s.Reserve(100), "seed %d: slots were lost", seed)
			require.Equal(t, []string{"never"}, s.Full())
			s.Close()
			s.Close()
			for n := range most {
				select {
				case <-s.Idle():
					require.Fail(t, "idle while slots are taken", "seed %d: %d", seed, most-n)
				default:
				}
				if n%2 == 0 {
					s.Release(1)
				} else {
					s.Done("free")
				}
				require.Zero(t, s.Reserve(1))
			}
			<-s.Idle()
		})
	}
}

func count(running []string, graph string) (n int) {
	for _, g := range running {
		if g == graph {
			n++
		}
	}
	return n
}

func TestNoSlots(t *testing.T) {
	s := slots.New(-1, nil, func() {})
	require.Zero(t, s.Len())
	require.Zero(t, s.Reserve(1))
	require.Zero(t, s.ReserveQueued(1))
	require.False(t, s.ReserveSoon(t.Context()))
	s.Close()
	<-s.Idle()
}

func ExampleSlots() {
	s := slots.New(2, map[string]int{"researcher": 1}, func() { fmt.Println("look into the queue") })
	fmt.Println(s.Reserve(3), s.Enter("researcher"), s.Enter("researcher"))
	s.Done("researcher")
	// Output:
	// 2 true false
	// look into the queue
}
