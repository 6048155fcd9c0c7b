package deerflow

import (
	"context"
	"encoding/json"
	"time"

	"understudy/id"
	"understudy/internal/fault"
)

// Feedback is what a user thinks of a run.
type Feedback struct {
	ID      string // UUID
	Run     id.Run
	Thread  id.Thread
	User    string
	Message *string // id of the message that was rated
	Rating  int     // 1 or -1
	Comment *string
	// Scores is what was given under feedback keys of LangGraph, an object by key; nil: nothing.
	Scores    json.RawMessage
	CreatedAt time.Time
}

// MaxScores bounds Feedback.Scores in bytes.
const MaxScores = 256 << 10

// ErrScores: more was given under the feedback keys of a run than is kept.
var ErrScores = fault.Newf(fault.TooLarge, "The feedback of a run has up to %d KiB", MaxScores>>10)

// Tally counts the feedback of a run.
type Tally struct{ Total, Positive, Negative int }

// Feedbacks keeps feedback: at most one of each user for a run. Deleting a thread deletes its feedback.
type Feedbacks interface {
	// PutFeedback inserts f, or replaces rating, comment and message of the one that its user has given for the run; it returns the row. The run need not be there,
	// as those of imported messages are not. It leaves scores as they are. Errors: fault.NotFound when there is no thread.
	PutFeedback(ctx context.Context, f Feedback) (Feedback, error)
	// GiveFeedback is PutFeedback for what is given under feedback keys: f.Scores replace those with the same keys, and the comment stays if f has none, unless it
	// was that of one of these keys. Errors: fault.NotFound when the thread has no such run, ErrScores.
	GiveFeedback(ctx context.Context, f Feedback) (Feedback, error)
	// FeedbackOf returns the feedback of a user for runs of a thread, oldest first; no runs: all of the thread.
	FeedbackOf(ctx context.Context, user string, t id.Thread, runs ...id.Run) ([]Feedback, error)
	// RunFeedback returns the feedback of all users for a run, oldest first: limit pieces from an offset.
	RunFeedback(ctx context.Context, t id.Thread, r id.Run, limit, offset int) ([]Feedback, error)
	// Feedback returns one by its id; fault.NotFound.
	Feedback(ctx context.Context, feedback string) (Feedback, error)
	DeleteFeedback(ctx context.Context, feedback string) error
	// TallyFeedback counts over all users.
	TallyFeedback(ctx context.Context, t id.Thread, r id.Run) (Tally, error)
}
