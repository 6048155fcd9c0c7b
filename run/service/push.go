package service

import (
	"context"
	"slices"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/settle"
	"understudy/run/webhook"
)

// maxPush bounds the push notifications of a run.
const maxPush = 10

// checkPush refuses addresses that the policy for webhooks refuses.
func (s *Service) checkPush(list []webhook.Push) error {
	if len(list) > maxPush {
		return fault.Newf(fault.Unprocessable, "A task has at most %d push notification configurations", maxPush)
	}
	for _, p := range list {
		if err := s.Webhooks.Check(p.URL); err != nil {
			return err
		}
	}
	return nil
}

// sendPush sends what was put into the outbox for runs that ended before they began.
func (s *Service) sendPush(ended []*run.Run) {
	if slices.ContainsFunc(ended, func(r *run.Run) bool { return len(r.Kwargs.Push) > 0 }) {
		s.sender.Poke()
	}
}

// SetPush changes the push notifications of a run: change returns the new ones, and knows whether the run is over. It may be called again. Those of a run that
// is over are for the runs that continue its task. Addresses that the policy refuses are reported before an error of change.
func (s *Service) SetPush(ctx context.Context, t id.Thread, r id.Run, change func(list []webhook.Push, over bool) ([]webhook.Push, error)) error {
	return s.settler.Write(ctx, func(tx run.Tx, _ *settle.Readings) error {
		row, err := tx.Run(t, r)
		if err != nil {
			return err
		}
		changed, refused := change(row.Kwargs.Push, row.Status.Over())
		if err := s.checkPush(changed); err != nil {
			return err
		}
		if refused != nil {
			return refused
		}
		row.Kwargs.Push = changed
		return tx.UpdateRun(row)
	})
}
