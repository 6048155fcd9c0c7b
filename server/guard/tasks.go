package guard

import (
	"context"

	"understudy/server/deerflow/gateway"
)

// tasks guards gateway.Tasks. Whose a task is, the service checks itself; its runs are asked about by Guard.AdmitAgain.
type tasks struct {
	*Guard
	gateway.Tasks
}

// TriggerTask counts against the limit of the account.
func (g *tasks) TriggerTask(ctx context.Context, account, task string) error {
	if err := g.Pace.take(account, 1); err != nil {
		return err
	}
	return g.Tasks.TriggerTask(ctx, account, task)
}
