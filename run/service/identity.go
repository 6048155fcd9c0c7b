package service

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"understudy/access"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// retryAfter is when a client that has too many runs may try again, in seconds: when one of them ends is not known.
const retryAfter = 5

// identityOf returns whose run a request makes, if runs of identities are counted; "" if not.
func (s *Service) identityOf(req *run.Request) string {
	if s.PerIdentity == 0 || req.Actor == nil || req.Actor == access.System {
		return ""
	}
	return req.Actor.Identity
}

// countRun counts a run that is going to be inserted, and refuses it when its identity has as many as it may. Those that c ends or stops are not counted.
// A run of a cron does not wait for the transactions of others that count, as it is never refused: crons of several identities fire in one transaction.
func (s *Service) countRun(tx run.Tx, req *run.Request, r *run.Run, c *created, limited bool) error {
	identity := s.identityOf(req)
	if identity == "" {
		return nil
	}
	if limited {
		active, err := tx.RunsOf(identity)
		if err != nil {
			return err
		}
		active = slices.DeleteFunc(active, func(x id.Run) bool {
			return slices.Contains(c.stopped, x) || slices.ContainsFunc(c.ended, func(other *run.Run) bool { return other.ID == x })
		})
		if len(active) >= s.PerIdentity {
			return &access.Refusal{
				Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {strconv.Itoa(retryAfter)}},
				Detail: jsonobj.Quote(fmt.Sprintf("Too many runs: %d are waiting or running, the most that are allowed; try again when one has ended", len(active))),
			}
		}
	}
	return tx.AddRunOf(identity, r.ID)
}
