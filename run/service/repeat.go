package service

import (
	"context"
	"fmt"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/run"
)

// recordOf returns the record of the request that one with a key repeats; nil when it repeats none.
func recordOf(tx run.Tx, key *idempotency.Key, now time.Time) (*idempotency.Record, error) {
	if key == nil {
		return nil, nil
	}
	r, err := tx.IdempotencyRecord(key.ID, idempotency.Expired(now))
	if err != nil || r == nil {
		return nil, err
	}
	return r, key.Check(r)
}

// storeKey stores the key of a request with the runs that it has created. It comes last in a transaction, as it waits for others that store the same key.
func storeKey(tx run.Tx, key *idempotency.Key, t id.Thread, done []created, now time.Time) error {
	if key == nil {
		return nil
	}
	r := &idempotency.Record{ID: key.ID, Digest: key.Digest, At: now, Thread: string(t)}
	for _, c := range done {
		r.Runs = append(r.Runs, string(c.run.ID))
	}
	return tx.InsertIdempotencyRecord(r, idempotency.Expired(now))
}

// repeat returns the runs that an earlier request has created. idempotency.ErrGone: one of them is deleted, as stateless runs are at their end.
func (s *Service) repeat(ctx context.Context, r *idempotency.Record) ([]*run.Run, error) {
	runs := make([]*run.Run, len(r.Runs))
	for i, name := range r.Runs {
		row, err := s.Store.Run(ctx, id.Thread(r.Thread), id.Run(name))
		if fault.Is(err, fault.NotFound) {
			return nil, idempotency.ErrGone
		}
		if err != nil {
			return nil, fmt.Errorf("run %s of a repeated request: %w", name, err)
		}
		runs[i] = row
	}
	return runs, nil
}

// join follows the run of a repeated request, a stream from its first record as far as records are kept.
func (s *Service) join(ctx context.Context, r *run.Run, req *run.Request, wait bool) (_ *run.Run, f run.Follower, err error) {
	if wait {
		f, err = s.Join(ctx, r.Thread, r.ID)
	} else {
		f, err = s.JoinStream(ctx, r.Thread, r.ID, &bridge.Offset{}, nil, req.OnDisconnect == "cancel")
	}
	if fault.Is(err, fault.NotFound) { // it has ended meanwhile
		err = idempotency.ErrGone
	}
	if err != nil {
		return nil, nil, err
	}
	return r, f, nil
}
