package service

import (
	"context"

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

// SetPush changes the push notifications of a run: change returns the new ones. It may be called again. Those of a run that is over are for the runs
// that continue its task.
func (s *Service) SetPush(ctx context.Context, t id.Thread, r id.Run, change func([]webhook.Push) ([]webhook.Push, error)) error {
	return s.settler.Write(ctx, func(tx run.Tx, _ *settle.Readings) error {
		row, err := tx.Run(t, r)
		if err != nil {
			return err
		}
		changed, err := change(row.Kwargs.Push)
		if err == nil {
			err = s.checkPush(changed)
		}
		if err != nil {
			return err
		}
		row.Kwargs.Push = changed
		return tx.UpdateRun(row)
	})
}
