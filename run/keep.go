package run

import (
	"context"
	"maps"
	"slices"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
)

// kept is a record on its way into the database; with done instead, everything before it is to be written first.
type kept struct {
	thread id.Thread
	record *bridge.Record
	done   chan<- struct{}
}

// keepBatch bounds one transaction of kept records.
const keepBatch = 512

// keepRecords writes the records of resumable runs, all that are waiting in one transaction. When ctx ends it writes what waits and returns.
func (s *Service) keepRecords(ctx context.Context) {
	for {
		var batch []kept
		select {
		case k := <-s.keep:
			batch = append(batch, k)
		case <-ctx.Done():
		}
	more:
		for len(batch) < keepBatch {
			select {
			case k := <-s.keep:
				batch = append(batch, k)
			default:
				break more
			}
		}
		if len(batch) == 0 {
			return // only ctx got us here
		}
		s.writeRecords(ctx, batch)
	}
}

// keepRecord hands a record over. It waits when the storage is slower than the graph.
func (s *Service) keepRecord(k kept) bool {
	select {
	case s.keep <- k:
		return true
	case <-s.stopped:
		return false
	}
}

// writeRecords returns when the records are written, or cannot be. When instances share the storage and it is away it is waited for: what was shown
// live must be found there by whoever comes again. Runs wait meanwhile, when the channel is full. The end of ctx ends the patience.
func (s *Service) writeRecords(ctx context.Context, batch []kept) {
	write := context.WithoutCancel(ctx)
	byThread := map[id.Thread][]*bridge.Record{}
	for _, k := range batch {
		if k.record != nil {
			byThread[k.thread] = append(byThread[k.thread], k.record)
		}
	}
	// Records of threads that are gone by now are dropped one by one inside: the others must not suffer.
	for wait := 10 * time.Millisecond; len(byThread) > 0; wait *= 2 {
		err := s.Store.Write(write, func(tx Tx) error {
			for _, t := range slices.Sorted(maps.Keys(byThread)) { // a storage that locks them one by one wants the same order everywhere
				if err := tx.InsertRecords(t, byThread[t]); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			break
		}
		if wait > time.Second && s.shared != nil && fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
			wait = time.Second / 2
		}
		if wait > time.Second {
			s.log.ErrorContext(ctx, "stream records could not be kept: rejoining after a restart will have a gap", "error", err)
			break
		}
		time.Sleep(wait)
	}
	for _, k := range batch {
		if k.done != nil {
			close(k.done)
		}
	}
}

// flushRecords returns when all records published before are written.
func (s *Service) flushRecords(ctx context.Context) {
	done := make(chan struct{})
	if !s.keepRecord(kept{done: done}) {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-s.quit: // the storage is away, and the server ends
	}
}
