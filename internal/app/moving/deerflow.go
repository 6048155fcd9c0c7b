package moving

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"understudy/deerflow/account"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/fault"
	"understudy/storage/deerflow"
	"understudy/transfer"
)

// deerFlowGraph is the graph of DeerFlow's threads.
const deerFlowGraph = "lead_agent"

// moveAccounts moves accounts and feedback of an installation, and compares what is here already. It adds to the result.
func moveAccounts(ctx context.Context, from *deerflow.Installation, rows backend.Database, result *transfer.Result) error {
	users := map[string]bool{}
	for u, err := range from.Users(ctx) {
		if err != nil {
			return fmt.Errorf("accounts of %s: %w", from.Name(), err)
		}
		fresh, err := moveUser(ctx, u, rows)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			result.Problems = append(result.Problems, transfer.Problem{What: "account " + u.Email, Err: err})
			continue
		case fresh:
			result.Users.New++
		default:
			result.Users.Known++
		}
		users[u.ID] = true
	}
	lost, unrated := 0, 0
	for f, err := range from.Feedback(ctx) {
		if err != nil {
			return fmt.Errorf("feedback of %s: %w", from.Name(), err)
		}
		if id.Canonical(string(f.Run)) != string(f.Run) {
			lost++ // of a run that cannot be named here
			continue
		}
		if f.Rating != 1 && f.Rating != -1 {
			unrated++ // neither approval nor rejection may be made of it
			continue
		}
		have, err := rows.FeedbackOf(ctx, f.User, f.Thread, f.Run)
		if err != nil {
			return fmt.Errorf("feedback %s: %w", f.ID, err)
		}
		if len(have) > 0 { // also one that was changed here since
			result.Feedback.Known++
			continue
		}
		switch kept, err := rows.PutFeedback(ctx, *f); {
		case fault.Is(err, fault.NotFound):
			lost++
		case err != nil:
			return fmt.Errorf("feedback %s: %w", f.ID, err)
		case kept.Rating != f.Rating || kept.ID != f.ID:
			result.Problems = append(result.Problems, transfer.Problem{What: "feedback " + f.ID, Err: errors.New("what is read back differs")})
		default:
			result.Feedback.New++
		}
	}
	if lost > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d pieces of feedback are left out: their threads are gone", lost))
	}
	if unrated > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d pieces of feedback are left out: they have no rating of +1 or -1", unrated))
	}
	return nil
}

// moveUser moves an account, unless it is here. It reports whether it was not.
func moveUser(ctx context.Context, u *account.User, rows backend.Database) (fresh bool, err error) {
	have, err := rows.User(ctx, u.ID)
	if err == nil {
		if have.Role != u.Role {
			return false, fmt.Errorf("its role here is %s, there %s", have.Role, u.Role)
		}
		return false, nil // its password and address may have been changed here
	} else if !fault.Is(err, fault.NotFound) {
		return false, err
	}
	switch err := rows.InsertUser(ctx, u, false); {
	case fault.Is(err, fault.Conflict):
		return false, errors.New("another account has this e-mail address here; the threads of this one are moved, but it cannot sign in")
	case err != nil:
		return false, err
	}
	kept, err := rows.User(ctx, u.ID)
	if err == nil && (kept.Email != u.Email || kept.Password != u.Password || kept.Role != u.Role || kept.Version != u.Version) {
		err = errors.New("what is read back differs")
	}
	return true, err
}

// graphsWith adds DeerFlow's graph to those that are known; nil stays nil: all are.
func graphsWith(known []string) []string {
	if known == nil || slices.Contains(known, deerFlowGraph) {
		return known
	}
	return append(known, deerFlowGraph)
}
